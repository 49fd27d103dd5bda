/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Source lines and inlined calls of one image, from DWARF.
 *
 * DWARF may be in the image itself or in its separate debug file, with split units (.dwo, .dwp) and
 * supplementary files (dwz) beside them. Units are read when an address in them is first asked for.
 */
#ifndef HEAPTAP_SYMBOLIZE_LINES_H
#define HEAPTAP_SYMBOLIZE_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

struct lines;

/* One function at an address. Strings are owned by the lines. */
struct line_frame {
	const char *name;     /* linkage name if there is one, else the source name; may be NULL */
	const char *filename; /* absolute where DWARF says so; NULL if not known */
	long line;	      /* 0 if not known */
	long start_line;      /* of the function's declaration; 0 if not known */
};

/*
 * Opens the DWARF of an image. The image is not owned and must outlive the lines. Errors: -ENOENT
 * if it has none, -ENOMEM, -EBADMSG for DWARF that libdw refuses.
 */
int lines_open(struct image *image, struct lines **ret);
/*
 * The same, for a target with a root of its own: files beside the image are searched below root_fd,
 * as of root_open(), and then in ours. The descriptor is duplicated; -1 is none.
 */
int lines_open_at(struct image *image, int root_fd, struct lines **ret);
void lines_close(struct lines *lines);
/* Of memory, that of libdw not included. */
size_t lines_bytes(const struct lines *lines);
/* What may still be spent on lookups: one that is opened again goes on where it was. */
uint64_t lines_work_left(const struct lines *lines);
void lines_limit_work(struct lines *lines, uint64_t left);
DEFINE_CLEANUP(lines, struct lines *, lines_close)

/*
 * The functions at a virtual address, innermost inlined first, the real one last. *ret is owned by
 * the lines and valid until the next call. *ret_count is 0 if no unit covers the address. The
 * address is that of an instruction's byte, not a return address. Returns 0, -ENOMEM, or -E2BIG
 * once the image has used up its bound of time or memory.
 */
int lines_lookup(struct lines *lines, uint64_t vaddr, const struct line_frame **ret,
		 size_t *ret_count);

#endif
