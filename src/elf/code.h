/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The executable segments of an image: where its code is in memory and in the file. Unlike
 * image.h's access this keeps nothing in memory: for passes over a whole text.
 */
#ifndef HEAPTAP_ELF_CODE_H
#define HEAPTAP_ELF_CODE_H

#include "elf/image.h"

/* Linkers make one or two. The bound keeps searches short where a file claims thousands. */
#define CODE_MAX_SEGMENTS 64

struct code_segment {
	uint64_t vaddr;
	uint64_t offset; /* in the file */
	uint64_t size;	 /* in the file, not reaching past its end */
};

struct code {
	struct code_segment segments[CODE_MAX_SEGMENTS]; /* by file offset */
	size_t count;
	int fd; /* the image's */
};

/* Segments past the bound are ignored. Errors: -ENOENT if there is no code, -ENOEXEC. */
int code_load(struct image *image, struct code *ret);

/* The segment that holds an address or an offset; NULL if none does. */
const struct code_segment *code_at_vaddr(const struct code *code, uint64_t vaddr);
const struct code_segment *code_at_offset(const struct code *code, uint64_t offset);

/*
 * Reads up to size bytes at a file offset. Returns how many, fewer where the file ends or cannot
 * be read.
 */
size_t code_read(const struct code *code, uint64_t offset, void *data, size_t size);

#endif
