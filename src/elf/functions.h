/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where functions begin, by the sorted table of .eh_frame_hdr, which stripped files keep. */
#ifndef HEAPTAP_ELF_FUNCTIONS_H
#define HEAPTAP_ELF_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

/* The bytes belong to the image. */
struct functions {
	const uint8_t *table; /* pairs of int32: function start and FDE, relative to base */
	size_t count;
	uint64_t base;
};

/* Empty if the image has no such table, or one in a form that linkers do not write. */
struct functions functions_load(struct image *image);

/* Where the last function begins that begins at this virtual address or before; false: none. */
bool functions_find(const struct functions *functions, uint64_t vaddr, uint64_t *ret);

/* Whether a function begins at this virtual address. */
bool functions_begin(const struct functions *functions, uint64_t vaddr);

#endif
