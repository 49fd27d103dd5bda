/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where an image samples allocations by itself, so that heaptap need only take note of it. See
 * heaptap/sampler.h for the samplers that are known.
 */
#ifndef HEAPTAP_PROBE_SAMPLERS_H
#define HEAPTAP_PROBE_SAMPLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"
#include "heaptap/probe.h"
#include "heaptap/sampler.h"
#include "probe/locate.h"

struct sampler_probe {
	const char *name;   /* in words, static */
	uint64_t offset;    /* in the file */
	uint64_t semaphore; /* file offset of the counter that the kernel is to raise, or 0 */
	struct sampler_point point;
};

/* Of one image. */
struct sampler_probes {
	struct sampler_probe *entries;
	size_t count;
	/* USDT probes otel_memory: for samples and for frees... */
	bool tells_allocs;
	bool tells_frees;
	/* ...and those whose arguments are in a form that cannot be read, which are left out. */
	size_t unreadable;
	/* gperftools' tcmalloc, with its sampler; and with what shows each sample's block and free.
	 */
	bool has_countdown;
	bool has_blocks;
	/* jemalloc with its profiler; what shows its samples shows their frees. */
	bool has_jemalloc;
};

/*
 * locator: for jemalloc's names in a stripped image's debug file; NULL: not looked for there.
 * markers_only: USDT probes alone, which cost no look at symbols and code. Errors: -ENOMEM, -E2BIG
 * for more than SAMPLER_POINTS_MAX.
 */
int sampler_probes_find(struct image *image, struct locator *locator, bool markers_only,
			struct sampler_probes *ret);
void sampler_probes_fini(struct sampler_probes *probes);

static inline void cleanup_sampler_probes(struct sampler_probes *probes)
{
	sampler_probes_fini(probes);
}

/* Whether all that an image samples is also seen freed. has_interval: tcmalloc is told to sample.
 */
bool sampler_probes_know_frees(const struct sampler_probes *probes, bool has_interval);

/*
 * TCMALLOC_SAMPLE_PARAMETER as gperftools reads it (strtoll, base 10): the mean distance in bytes,
 * 0 for none; text may be NULL.
 */
uint64_t sampler_interval_parse(const char *text);

#endif
