/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Poisson sampler, in integers; pure, so that the unit tests compile it on the host.
 *
 * Samples lie on the stream of allocated bytes like events of a Poisson process with mean distance
 * R. The gap to the next one is -R ln(u), u uniform in (0, 1). Because the process has no memory,
 * a drawn sample may be thrown away (a nested call, a process outside the scope) without touching
 * the chances of any other byte, and CPUs may each follow a stream of their own.
 */
#ifndef HEAPTAP_SAMPLER_BPF_H
#define HEAPTAP_SAMPLER_BPF_H

#include "heaptap/weight.h"

#define SAMPLER_LN2 2977044472ull /* ln(2) * 2^32 */

/* -R ln(u), rounded down, for u = random / 2^64. */
static inline __u64 sampler_gap(const volatile struct sampling_tables *tables, __u64 random)
{
	__u64 mean = tables->sample_bytes;
	__u64 low, high, log2, nats;
	__u32 zeros = 0, step;

	/* u = m * 2^-(zeros+1) with m in [1, 2): shift the leading one to the top. */
	random |= 1;
	if (!(random >> 32)) {
		random <<= 32;
		zeros += 32;
	}
	if (!(random >> 48)) {
		random <<= 16;
		zeros += 16;
	}
	if (!(random >> 56)) {
		random <<= 8;
		zeros += 8;
	}
	if (!(random >> 60)) {
		random <<= 4;
		zeros += 4;
	}
	if (!(random >> 62)) {
		random <<= 2;
		zeros += 2;
	}
	if (!(random >> 63)) {
		random <<= 1;
		zeros += 1;
	}
	step = random >> (63 - LOG2_STEP_SHIFT) & (LOG2_STEPS - 1);
	low = tables->log2[step];
	high = tables->log2[step + 1];
	log2 = low + ((high - low) * (random >> (31 - LOG2_STEP_SHIFT) & 0xffffffff) >> 32);

	/* -ln(u), 32 fractional bits; below 45, so the product with a mean below 2^31 is split. */
	nats = ((((__u64)zeros + 1) << 32) - log2) >> 8;
	nats = nats * SAMPLER_LN2 >> 24;
	return mean * (nats >> 32) + (mean * (nats & 0xffffffff) >> 32);
}

/*
 * What a picked allocation of `size` bytes stands for, where samples are `mean` bytes apart. Its
 * variance is in units of mean^2.
 */
static inline void sampler_weight_of(const volatile struct sampling_tables *tables, __u64 mean,
				     __u64 size, struct weight *weight)
{
	__u64 bytes = size ? size : 1; /* size 0 is one object, picked like a byte */
	__u64 scaled, fraction, g, low, high;
	__u32 step;

	weight->thread = 0;
	if (mean <= 1 || bytes >= mean * WEIGHT_MAX_X) {
		weight->bytes = size << WEIGHT_BYTES_SHIFT;
		weight->objects = 1ull << WEIGHT_OBJECTS_SHIFT;
		weight->variance = 0;
		return;
	}
	scaled = bytes << WEIGHT_STEP_SHIFT;
	step = scaled / mean;
	fraction = ((scaled % mean) << 32) / mean;
	if (step >= WEIGHT_STEPS) /* cannot be; the verifier wants to see it */
		step = WEIGHT_STEPS - 1;
	low = tables->g[step];
	high = tables->g[step + 1];
	g = low + ((high - low) * fraction >> 32);

	/* R g, rounded to WEIGHT_BYTES_SHIFT bits; the parts keep the product within 64 bits. */
	weight->bytes = (mean * (g >> 32) << WEIGHT_BYTES_SHIFT) +
			((mean * (g & 0xffffffff) + (1u << 23)) >> (32 - WEIGHT_BYTES_SHIFT));
	weight->objects =
		((weight->bytes << (WEIGHT_OBJECTS_SHIFT - WEIGHT_BYTES_SHIFT)) + bytes / 2) /
		bytes;
	if (!size)
		weight->bytes = 0;
	low = tables->variance[step];
	high = tables->variance[step + 1];
	weight->variance = low - ((low - high) * fraction >> 32);
}

static inline void sampler_weight(const volatile struct sampling_tables *tables, __u64 size,
				  struct weight *weight)
{
	sampler_weight_of(tables, tables->sample_bytes, size, weight);
}

/* A variance in units of mean^2 as one in units of the session's own distance, squared. */
static inline __u32 sampler_variance(const volatile struct sampling_tables *tables, __u64 mean,
				     __u32 variance)
{
	__u64 own = tables->sample_bytes, ratio, scaled;

	if (mean == own || !own)
		return variance;
	/* At most 2^12 with 16 fractional bits: past that the result is at its limit anyhow. */
	ratio = (mean << 16) / own;
	if (ratio >> 28)
		ratio = 1u << 28;
	scaled = variance * ratio >> 16;
	if (scaled >> 32)
		return ~0u;
	scaled = scaled * ratio >> 16;
	return scaled >> 32 ? ~0u : scaled;
}

/*
 * What a sample stands for of which the program says that it stands for `told` bytes: its chance
 * was size / told.
 */
static inline void sampler_weight_told(const volatile struct sampling_tables *tables, __u64 size,
				       __u64 told, struct weight *weight)
{
	__u64 own = tables->sample_bytes, whole, rest, square;

	weight->thread = 0;
	weight->bytes = told << WEIGHT_BYTES_SHIFT;
	weight->objects = size ? ((told << WEIGHT_OBJECTS_SHIFT) + size / 2) / size
			       : 1ull << WEIGHT_OBJECTS_SHIFT;
	weight->variance = 0;
	if (!own || told <= size)
		return;
	/* (told / own) ((told - size) / own), 12 fractional bits each. */
	whole = (told << 12) / own;
	rest = ((told - size) << 12) / own;
	if (whole >> 31 || rest >> 31) {
		weight->variance = ~0u;
		return;
	}
	square = whole * rest;
	weight->variance = square >> 32 ? ~0u : square;
}

/* Takes `size` bytes off the way to the next sample; returns 0 if the sample lies among them. */
static inline int sampler_passes(__u64 *bytes_left, __u64 size)
{
	__u64 left = *(volatile __u64 *)bytes_left, bytes = size ? size : 1;

	/* Unsigned: any size may be asked for, and fail. */
	if (bytes > left)
		return 0;
	*bytes_left = left - bytes;
	return 1;
}

/*
 * The same with the way to the sample after that; returns 1 if the sample lies among the bytes.
 * Another thread may run on this CPU in between and overwrite bytes_left: both then saw the same
 * exponentially distributed distance, so each was still picked with the right chance.
 */
static inline int sampler_advance(const volatile struct sampling_tables *tables, __u64 *bytes_left,
				  __u64 size, __u64 random)
{
	if (sampler_passes(bytes_left, size))
		return 0;
	*bytes_left = sampler_gap(tables, random);
	return 1;
}

#endif
