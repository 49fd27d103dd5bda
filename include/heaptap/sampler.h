/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Allocators that sample by themselves: where, and what the program that runs there is to read.
 * The cookie of such a probe (heaptap/probe.h) has the point's index in place of the file offset.
 *
 * gperftools' tcmalloc counts bytes down per thread, and calls Sampler::RecordAllocationSlow() when
 * the counter has run out. With a sampling parameter it then draws the next distance, of that mean,
 * and gives the block to DoSampledAllocation(), which takes a span for it alone; so its free is a
 * PageHeap::Delete(). Without a parameter the distance is fixed, and nothing else happens.
 *
 * otel_memory is a contract of the OpenTelemetry eBPF profiler: USDT probes that an allocator fires
 * for what it samples, alloc(block, size, bytes it stands for) and free(block).
 *
 * jemalloc 5.3 with prof:true draws distances of a mean of 2^lg_prof_sample bytes. It gives each
 * sample an extent of its own, and calls prof_malloc_sample_object() with the block's sizes, which
 * calls large_prof_info_set() with the extent. Whatever frees or reallocates a sample calls
 * prof_recent_alloc_reset() with its extent, and prof_free_sampled_object(), which gets neither
 * extent nor block, once that is done: not after a realloc that failed, and after
 * prof_malloc_sample_object() where a realloc is sampled, too. Nothing else calls any of them.
 */
#ifndef HEAPTAP_SAMPLER_H
#define HEAPTAP_SAMPLER_H

#include "heaptap/types.h"

#define SAMPLER_POINTS_MAX 256
#define SAMPLER_ARGS	   3

/* gperftools' distance without a parameter: src/sampler.cc, PickNextSamplingPoint(). */
#define SAMPLER_COUNTDOWN_BYTES (16ull << 20)

enum sampler_arg_kind {
	SAMPLER_ARG_NONE,
	SAMPLER_ARG_CONSTANT, /* value */
	SAMPLER_ARG_REGISTER,
	SAMPLER_ARG_MEMORY, /* at base + (index << shift) + value */
};

#define SAMPLER_NO_REGISTER 16

struct sampler_arg {
	__s64 value;
	__u8 kind; /* enum sampler_arg_kind */
	__u8 base; /* a register as probe.h numbers them, or SAMPLER_NO_REGISTER; and below */
	__u8 index;
	__u8 shift;
	__u8 size; /* bytes: 1, 2, 4 or 8 */
	__u8 is_signed;
	__u8 pad[2];
};

/* DoSampledAllocation() is probed, too: it counts what the allocator samples. */
#define SAMPLER_BLOCK_PROBED 1u
/* No free will be seen of what is counted here. */
#define SAMPLER_FREES_UNKNOWN 2u
/* The frames at the leaf that are in the same image are the allocator's own. */
#define SAMPLER_OWN_IMAGE 4u

struct sampler_point {
	struct sampler_arg args[SAMPLER_ARGS]; /* of USDT probes */
	/* The variable that holds the mean distance, or with jemalloc its binary logarithm, from
	 * here; 0: unknown.
	 */
	__s64 interval_at;
	__u32 flags; /* SAMPLER_* */
	__u32 kind;  /* enum probe_kind */
};

/* How an allocator's samples came to be, and so what their sum is. */
enum sampler_estimate {
	ESTIMATE_GEOMETRIC,  /* tcmalloc: by chance, with a chance that is known: unbiased */
	ESTIMATE_JEMALLOC,   /* likewise */
	ESTIMATE_SYSTEMATIC, /* at fixed distances: each stands for the bytes since the last one */
	ESTIMATE_TOLD,	     /* the program itself has told what each stands for */
	ESTIMATE_COUNT
};

_Static_assert(sizeof(struct sampler_arg) == 16, "sampler_arg has no padding");
_Static_assert(sizeof(struct sampler_point) == 64, "sampler_point has no padding");

#endif
