/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The words of an image (its GOT, mostly) that the dynamic linker fills with functions' addresses.
 */
#ifndef HEAPTAP_ELF_SLOTS_H
#define HEAPTAP_ELF_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <libelf.h>

#include "util/cleanup.h"

#define SLOT_NOT_IN_PLT UINT32_MAX

struct slot {
	uint64_t address;  /* virtual address of the word */
	const char *name;  /* of the function, without version; NULL for an ifunc's resolver */
	uint64_t resolver; /* its address, if name is NULL */
	uint32_t index;	   /* in .rela.plt, or SLOT_NOT_IN_PLT */
};

struct slots {
	struct slot *entries; /* by address */
	size_t count;
};

/*
 * Reads the relocations of types JUMP_SLOT, GLOB_DAT, IRELATIVE and 64 in .rela.plt and .rela.dyn
 * (x86-64 psABI, "Relocation Types"). Names are owned by the Elf. Returns 0, also if there are
 * none, or -ENOMEM.
 */
int slots_load(Elf *elf, struct slots *ret);
void slots_fini(struct slots *slots);

/* NULL if no relocation fills the word at this address. */
const struct slot *slots_at(const struct slots *slots, uint64_t address);

/*
 * The virtual address that a R_X86_64_RELATIVE relocation of .rela.dyn puts into the word at an
 * address. Searched for in the whole section: for single questions. False if there is none.
 */
bool slots_find_relative(Elf *elf, uint64_t address, uint64_t *ret);

#endif
