/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a probe point tells the BPF program that runs there. It travels in the BPF cookie, so that
 * one program serves every function of a kind in every image.
 */
#ifndef HEAPTAP_PROBE_H
#define HEAPTAP_PROBE_H

#include "heaptap/types.h"

enum probe_kind {
	PROBE_ALLOC = 1,    /* returns the block: malloc(size), valloc, pvalloc */
	PROBE_CALLOC,	    /* returns the block: calloc(count, size) */
	PROBE_MEMALIGN,	    /* returns the block: memalign(align, size), aligned_alloc */
	PROBE_OUT_ALLOC,    /* returns 0 and stores the block: posix_memalign(out, align, size) */
	PROBE_REALLOC,	    /* returns the block: realloc(old, size) */
	PROBE_FREE,	    /* free(old) */
	PROBE_REALLOCARRAY, /* returns the block: reallocarray(old, count, size) */
	PROBE_RESIZE,	    /* returns the size that the block has now: xallocx(old, size) */
	/*
	 * What allocators sample by themselves, see heaptap/sampler.h. Not in the cookie, but in
	 * struct sampler_point.
	 */
	PROBE_COUNTDOWN,  /* returns whether not to sample: RecordAllocationSlow(sampler, size) */
	PROBE_SAMPLED,	  /* returns the block: DoSampledAllocation(size) */
	PROBE_SPAN_FREE,  /* PageHeap::Delete(heap, span) */
	PROBE_TOLD_ALLOC, /* the USDT probe otel_memory:alloc */
	PROBE_TOLD_FREE,  /* otel_memory:free */
	/* prof_malloc_sample_object(tsd, block, size, usable size, backtrace) */
	PROBE_OBJECT_SAMPLED,
	PROBE_OBJECT_FREED,   /* prof_free_sampled_object(tsd, usable size, information) */
	PROBE_EXTENT_SAMPLED, /* large_prof_info_set(extent, backtrace, size) */
	PROBE_EXTENT_LEAVES,  /* prof_recent_alloc_reset(tsd, extent) */
};

/* realloc(NULL, n) ends in a jump to malloc, which counts it. */
#define PROBE_SKIP_NULL_OLD 1u
/* An alignment malloc gives anyway (up to 16) ends in a jump to malloc, which counts it. */
#define PROBE_SKIP_SMALL_ALIGN 2u

#define PROBE_SMALL_ALIGN 16

/* Without a return probe: an exception may pass, which one would stop. See throw_enter(). */
#define PROBE_ENTRY_ONLY 4u

/* Register numbers are those of the x86-64 instruction encoding: rax 0 ... rdi 7, r8 8 ... r15 15.
 */
struct probe_spec {
	__u8 kind;	 /* enum probe_kind */
	__u8 flags;	 /* PROBE_SKIP_*, PROBE_ENTRY_ONLY */
	__u8 size_reg;	 /* the size in bytes */
	__u8 aux_reg;	 /* the count of calloc and reallocarray; the alignment of others */
	__u8 ptr_reg;	 /* the old block of realloc and free; posix_memalign's out pointer */
	__u8 image;	 /* number of the probed image's nested calls, see nested_call_here() */
	__u8 generation; /* of the link, see attach_replace() */
	__u32 offset;	 /* file offset of the probe point */
};

/* Images with an allocator whose nested calls differ; others share a number. */
#define PROBE_MAX_NESTED_SETS 256

_Static_assert(PROBE_MAX_NESTED_SETS <= 1 << 8, "the cookie has 8 bits for the number");

/* kind:4 flags:4 size_reg:4 aux_reg:4 ptr_reg:4 generation:4 image:8 offset:32, lowest bits first.
 */
static inline __u64 probe_cookie(const struct probe_spec *s)
{
	return (__u64)(s->kind & 15) | (__u64)(s->flags & 15) << 4 |
	       (__u64)(s->size_reg & 15) << 8 | (__u64)(s->aux_reg & 15) << 12 |
	       (__u64)(s->ptr_reg & 15) << 16 | (__u64)(s->generation & 15) << 20 |
	       (__u64)s->image << 24 | (__u64)s->offset << 32;
}

#define PROBE_GENERATION_SHIFT 20
#define PROBE_GENERATIONS      16

static inline struct probe_spec probe_spec_of(__u64 cookie)
{
	return (struct probe_spec){
		.kind = cookie & 15,
		.flags = cookie >> 4 & 15,
		.size_reg = cookie >> 8 & 15,
		.aux_reg = cookie >> 12 & 15,
		.ptr_reg = cookie >> 16 & 15,
		.generation = cookie >> 20 & 15,
		.image = cookie >> 24 & 255,
		.offset = cookie >> 32,
	};
}

/*
 * Where allocation functions call each other: the instructions that those calls return to. An
 * allocation entered with such a return address is part of an outer one that counts it. No state is
 * kept, so a longjmp or a killed thread cannot confuse it.
 *
 * Keys of the `nested_calls` map: of a call within one image, and of a call into another image, by
 * the caller's frame word (heaptap/stack.h), whose highest bit is 0.
 */
#define PROBE_MAX_NESTED_CALLS 4096

#define NESTED_HERE    1u
#define NESTED_FOREIGN 2u

static inline __u64 nested_call_here(__u32 image, __u32 return_offset)
{
	return 1ull << 63 | (__u64)image << 32 | return_offset;
}

#endif
