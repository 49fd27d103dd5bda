/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How allocation functions of one image reach each other by direct branches. */
#ifndef HEAPTAP_PROBE_FLOW_H
#define HEAPTAP_PROBE_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"
#include "util/cleanup.h"

#define FLOW_MAX_TARGETS 32

struct flow {
	/* Bit i: targets[i] is reached by jumps alone, so it returns to the function's caller. */
	uint32_t tail_targets;
	/*
	 * Virtual addresses that a target returns to, if it was entered on behalf of the function:
	 * behind calls of the target, and of functions that end in a jump to it. Sorted, each once.
	 */
	uint64_t *returns;
	size_t return_count;
	bool truncated; /* a bound was reached: there may be more */
};

/*
 * Follows the code from the function at `from` (virtual addresses throughout) through direct jumps
 * and calls, up to the targets, which are not entered themselves. `from` may be one of them.
 * At most FLOW_MAX_TARGETS targets. Errors: -ENOMEM.
 */
int flow_trace(struct image *image, uint64_t from, const uint64_t *targets, size_t target_count,
	       struct flow *ret);
void flow_fini(struct flow *flow);

static inline void cleanup_flow(struct flow *flow)
{
	flow_fini(flow);
}

#endif
