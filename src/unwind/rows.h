/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The unwind rows of one image: from .eh_frame or .debug_frame, and for functions without either
 * by decoding their code.
 */
#ifndef HEAPTAP_UNWIND_ROWS_H
#define HEAPTAP_UNWIND_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "elf/image.h"
#include "elf/symtab.h"
#include "heaptap/unwind.h"

/* A row with its rule spelled out. */
struct rule_row {
	uint32_t offset; /* in the file */
	struct unwind_rule rule;
};

struct unwind_rows {
	struct rule_row *entries; /* by offset; neighbours differ in their rule */
	size_t count;
	size_t dropped_fdes;	 /* malformed, or out of bounds */
	size_t unsupported_rows; /* kept, as CFA_UNSUPPORTED */
	size_t synthesized;	 /* functions, or stretches of them, decoded from code */
};

/*
 * Builds the rows of an image. all: also rows that no call's return address can select, for images
 * that a signal or fault can interrupt anywhere. symtab may be NULL: then code is decoded only in
 * images that describe less than half of theirs, and without its help.
 * Malformed input drops that FDE, not the image. Errors: -ENOENT if nothing could be built, -E2BIG
 * past UNWIND_MAX_ROWS or 4 GiB of file, -ENOMEM.
 */
int unwind_rows_build(struct image *image, const struct symtab *symtab, bool all,
		      struct unwind_rows **ret);
void unwind_rows_free(struct unwind_rows *rows);
DEFINE_CLEANUP(unwind_rows, struct unwind_rows *, unwind_rows_free)

/* The rule that holds at a file offset; a CFA_GAP rule before the first row. */
struct unwind_rule unwind_rows_lookup(const struct unwind_rows *rows, uint64_t offset);

#endif
