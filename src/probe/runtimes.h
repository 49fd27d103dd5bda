/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Language runtimes with a heap of their own: what malloc's account of such a process lacks.
 *
 * A runtime is known by what its image cannot be without: a section that its linker writes, or a
 * function that it exports. Names of files say nothing.
 */
#ifndef HEAPTAP_PROBE_RUNTIMES_H
#define HEAPTAP_PROBE_RUNTIMES_H

#include <stddef.h>

#include "elf/image.h"

struct runtimes;

/*
 * variable reads an environment variable of the process, as it was at its start, into value; it
 * returns 0 or a negative errno. With some runtimes a variable decides who serves the heap.
 * Errors: -ENOMEM.
 */
int runtimes_new(int (*variable)(void *arg, const char *name, char *value, size_t size), void *arg,
		 struct runtimes **ret);
void runtimes_free(struct runtimes *runtimes);
DEFINE_CLEANUP(runtimes, struct runtimes *, runtimes_free)

/*
 * Looks for runtimes in an image of the process. One that is known already is not noted again.
 * What is damaged in the image is left out. Errors: -ENOMEM.
 */
int runtimes_note_image(struct runtimes *runtimes, struct image *image);

size_t runtimes_count(const struct runtimes *runtimes);

/*
 * One sentence for each: which runtime, by which evidence, what is counted and what is not, and how
 * to see the rest. The array and its strings stay as they are until runtimes_free(); new ones are
 * added at the end.
 */
const char *const *runtimes_describe(const struct runtimes *runtimes);

/* The same for a process in which no allocator was found, of the first runtime; NULL if none. */
const char *runtimes_explain_none(const struct runtimes *runtimes);

#endif
