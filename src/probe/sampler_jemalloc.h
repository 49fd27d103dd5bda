/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where jemalloc tells itself of what its profiler samples. See heaptap/sampler.h. */
#ifndef HEAPTAP_PROBE_SAMPLER_JEMALLOC_H
#define HEAPTAP_PROBE_SAMPLER_JEMALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "elf/image.h"
#include "elf/symtab.h"

/* Virtual addresses of its functions. */
struct jemalloc_sampler {
	uint64_t object_sampled;
	uint64_t object_freed;
	uint64_t extent_sampled;
	uint64_t extent_leaves;
	const char *interval; /* the variable with the mean distance's logarithm, static */
};

/*
 * False if the image has no names for all of them, as where jemalloc was built without
 * --enable-prof, or if one does not take the arguments that jemalloc 5.3's takes.
 */
bool jemalloc_sampler_find(struct image *image, const struct symtab *symtab,
			   struct jemalloc_sampler *ret);

/*
 * The mean distance in bytes that options in MALLOC_CONF's form ask for, 0 if they do not turn the
 * profiler on; text may be NULL.
 */
uint64_t jemalloc_interval_parse(const char *text);

#endif
