/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sampling tables and the fixed-point weight of a sample.
 *
 * An allocation of s bytes is picked with chance p = 1 - exp(-s/R), R being the mean distance
 * between samples. A picked one stands for s/p bytes, which is R g(s/R) with g(x) = x/(1-exp(-x)),
 * and for 1/p objects. The sum over the picked ones is then unbiased for every size and site.
 */
#ifndef HEAPTAP_WEIGHT_H
#define HEAPTAP_WEIGHT_H

#include "heaptap/types.h"

/* Fractional bits: a weight of 1 byte is 1 << 8, of 1 object 1 << 16. */
#define WEIGHT_BYTES_SHIFT    8
#define WEIGHT_OBJECTS_SHIFT  16
#define WEIGHT_VARIANCE_SHIFT 24

/* What one sample stands for. */
struct weight {
	__u64 bytes;
	__u64 objects;
	/*
	 * (s/p)^2 (1-p) in units of R^2: what this sample adds to the variance of the estimate of
	 * bytes. It is (x/2 / sinh(x/2))^2, x = s/R, so at most 1.
	 */
	__u32 variance;
	/* The number of its thread's name, see thread.h. No weight, but here is room for it. */
	__u32 thread;
};

struct weight_sum {
	__u64 bytes;
	__u64 objects;
	__u64 variance;
};

_Static_assert(sizeof(struct weight) == 24, "a live record has this much room");

/* x = s/R runs over [0, 16) in steps of 1/64; past that exp(-x) no longer matters (1e-7). */
#define WEIGHT_STEP_SHIFT 6
#define WEIGHT_MAX_X	  16
#define WEIGHT_STEPS	  (WEIGHT_MAX_X << WEIGHT_STEP_SHIFT)

/* log2 of a mantissa in [1, 2), by its 10 highest bits, as a 32-bit fraction. */
#define LOG2_STEP_SHIFT 10
#define LOG2_STEPS	(1 << LOG2_STEP_SHIFT)

/* Above this mean distance the products below would not fit 64 bits. */
#define SAMPLE_BYTES_MAX (1ull << 31)

/* Filled by src/probe/sampling.c before the programs are loaded, read-only for them. */
struct sampling_tables {
	__u64 sample_bytes;		  /* R; 1 picks every allocation */
	__u64 g[WEIGHT_STEPS + 1];	  /* g(x), 32 fractional bits */
	__u32 variance[WEIGHT_STEPS + 1]; /* WEIGHT_VARIANCE_SHIFT */
	__u32 pad;
	__u64 log2[LOG2_STEPS + 1]; /* 32 fractional bits */
};

#endif
