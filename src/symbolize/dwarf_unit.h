/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One unit: the tree of its debugging entries, in the file itself or in a split one, and what
 * reading addresses in it takes.
 */
#ifndef HEAPTAP_SYMBOLIZE_DWARF_UNIT_H
#define HEAPTAP_SYMBOLIZE_DWARF_UNIT_H

#include "symbolize/dwarf_file.h"
#include "symbolize/work.h"

struct dwarf_unit {
	const struct dwarf_file *main;
	const struct dwarf_file *file; /* with the tree; the split file where there is one */
	struct dwarf_file *split;      /* owned; NULL if there is none */
	Dwarf_Die skeleton;	       /* the unit's entry in the main file */
	Dwarf_Die die;		       /* the root of the tree; the skeleton if nothing was found */
	uint16_t version;
	uint64_t base;		/* what ranges are relative to */
	uint64_t addr_base;	/* of indices, in the main file's .debug_addr */
	uint64_t ranges_base;	/* in .debug_ranges, of a split unit before DWARF 5 */
	uint64_t rnglists_base; /* in .debug_rnglists of `file` */
};

/* A unit as it is in the main file: enough for the ranges of its skeleton. */
void dwarf_unit_init(struct dwarf_unit *unit, const struct dwarf_file *main, Dwarf_Die *skeleton,
		     uint16_t version);

/*
 * Opens the split unit that the skeleton names, if it does. Not to find it is no error. Returns 0,
 * -ENOMEM or -E2BIG.
 */
int dwarf_unit_open_split(struct dwarf_unit *unit, uint64_t id, const struct dwarf_place *place,
			  struct dwarf_file *package, struct work *work);
void dwarf_unit_fini(struct dwarf_unit *unit);

/* The string, number, address or section offset of an attribute; NULL or false without it. */
const char *dwarf_unit_string(const struct dwarf_unit *unit, Dwarf_Die *die,
			      unsigned int attribute);
/* The same of the entry or what it refers to: an abstract instance, a declaration, in any unit. */
const char *dwarf_unit_inherited_string(const struct dwarf_unit *unit, Dwarf_Die *die,
					unsigned int attribute);
bool dwarf_unit_number(Dwarf_Die *die, unsigned int attribute, uint64_t *ret);
bool dwarf_unit_address(const struct dwarf_unit *unit, Dwarf_Die *die, unsigned int attribute,
			uint64_t *ret);

bool dwarf_unit_offset(const struct dwarf_unit *unit, Dwarf_Die *die, unsigned int attribute,
		       uint64_t *ret);

/*
 * Calls func for each range of an entry, until it returns nonzero; returns that. Returns -E2BIG
 * once the work is used up.
 */
int dwarf_unit_ranges(const struct dwarf_unit *unit, Dwarf_Die *die, struct work *work,
		      int (*func)(void *arg, uint64_t low, uint64_t high), void *arg);

#endif
