/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names for frames: once per image and file offset, cached. */
#ifndef HEAPTAP_SYMBOLIZE_SYMBOLIZER_H
#define HEAPTAP_SYMBOLIZE_SYMBOLIZER_H

#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

struct symbolizer;

/* One function at a frame; a frame has several where calls were inlined, innermost first. */
struct symbolized_line {
	const char *name;	 /* demangled */
	const char *system_name; /* as in the file */
	const char *filename;	 /* NULL if not known */
	long line;		 /* 0 if not known */
};

struct symbolized_frame {
	const struct symbolized_line *lines;
	size_t line_count; /* 0: no name is known */
};

int symbolizer_new(struct symbolizer **ret);
void symbolizer_free(struct symbolizer *symbolizer);
DEFINE_CLEANUP(symbolizer, struct symbolizer *, symbolizer_free)

/*
 * Names the code at a file offset of an image. The image must outlive the symbolizer. The result
 * is owned by the symbolizer. Returns 0 also when nothing is known, or -ENOMEM.
 */
int symbolizer_lookup(struct symbolizer *symbolizer, struct image *image, uint64_t offset,
		      struct symbolized_frame *ret);

#endif
