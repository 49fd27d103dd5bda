/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which allocator an image without symbols has, by what its authors left in its data. */
#ifndef HEAPTAP_PROBE_RESEMBLE_H
#define HEAPTAP_PROBE_RESEMBLE_H

#include "elf/image.h"

#define RESEMBLE_MAX_LIBRARIES 4

struct resemble_allocator {
	const char *name;
	const char *mark;
	size_t mark_size;
	/* Where distributions install the static library; NULL behind the last. Go has none. */
	const char *libraries[RESEMBLE_MAX_LIBRARIES];
};

/* Reads all that is loaded from the file. NULL if nothing is known. */
const struct resemble_allocator *resemble_image(const struct image *image);

/* The first of the libraries that exists here, or the first; NULL if there is none to have. */
const char *resemble_library(const struct resemble_allocator *allocator);

#endif
