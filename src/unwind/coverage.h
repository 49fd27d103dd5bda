/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How much of an image's code can be unwound, before any table is built. */
#ifndef HEAPTAP_UNWIND_COVERAGE_H
#define HEAPTAP_UNWIND_COVERAGE_H

#include <stdint.h>

#include "elf/image.h"
#include "elf/symtab.h"

/* In bytes. The rest of the code is walked by frame pointers, where it keeps them. */
struct coverage {
	uint64_t code;	    /* in executable sections */
	uint64_t described; /* by .eh_frame or .debug_frame, with the padding in between */
	uint64_t decoded;   /* has none, and gets its rows from the code itself */
};

/* symtab: as unwind_rows_build() takes it. Errors: -ENOENT without code, -ENOEXEC, -ENOMEM. */
int coverage_of_code(struct image *image, const struct symtab *symtab, struct coverage *ret);

#endif
