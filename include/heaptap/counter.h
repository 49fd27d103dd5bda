/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the counting program notes per probe point. Its cookie is that of heaptap/probe.h, with the
 * point's index in place of the file offset.
 */
#ifndef HEAPTAP_COUNTER_H
#define HEAPTAP_COUNTER_H

#include "heaptap/types.h"

/* Points that can be counted at once; a process has some 20 per allocator. */
#define COUNTER_MAX_POINTS 4096

/* A size at least this large is a wrong argument, as no address space holds it. */
#define COUNTER_MAX_BYTES (1ull << 47)

struct counter_value {
	__u64 calls;
	__u64 bytes;
	/* No more than the sampling distance of each: divided by it, about the samples. */
	__u64 sampled_bytes;
};

_Static_assert(sizeof(struct counter_value) == 24, "a value of the map");

#endif
