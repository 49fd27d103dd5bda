/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How good a heap's numbers are: its stacks, and the error of sampling. */
#ifndef HEAPTAP_PROFILE_COVERAGE_H
#define HEAPTAP_PROFILE_COVERAGE_H

#include <stddef.h>
#include <stdint.h>

#include "profile/heap.h"

/* How good the stacks are, by bytes allocated. */
struct coverage {
	double alloc_bytes;
	double alloc_error; /* standard error of alloc_bytes */
	double stop_bytes[STOP_COUNT];
	double guessed_bytes; /* of the complete ones: with a frame-pointer step through such code
			       */
	double lost_bytes;
	double inuse_bytes;
	double inuse_error; /* standard error of inuse_bytes */
};

/* Of the sites of a set of accounts, see accounts.h. */
void coverage_measure(const struct heap *heap, uint32_t accounts, uint64_t sample_bytes,
		      struct coverage *ret);

/*
 * "99.2 % of alloc_space complete, 0.8 % cut: no unwind rows": the stacks' share of a sample type,
 * by reason.
 */
void coverage_describe(const struct coverage *coverage, const char *type, char *text, size_t size);

#endif
