/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the allocation functions of a process reach each other. */
#ifndef HEAPTAP_PROBE_FLOW_H
#define HEAPTAP_PROBE_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/linkage.h"

#define FLOW_MAX_TARGETS 1024

/* The target of a call through a pointer of which only running code knows where it leads. */
#define FLOW_UNKNOWN UINT32_MAX

/* Behind a call: where a target returns to that was entered on behalf of the function. */
struct flow_return {
	struct place place;
	uint32_t target; /* index in the targets, or FLOW_UNKNOWN */
};

struct flow {
	/* Indexes of targets reached by jumps alone: these return to the function's caller. */
	uint32_t *tails;
	size_t tail_count;
	/* Also behind calls of functions that end in a jump to a target. */
	struct flow_return *returns;
	size_t return_count;
	/*
	 * Every way out of the function leads through a target, or returns a constant as a failure
	 * does: the function allocates nothing by itself.
	 */
	bool delegates;
	bool truncated; /* a bound was reached: there may be more */
};

/*
 * Follows the code from the function at `from` through jumps and calls, up to the targets, which
 * are not entered themselves, and within the module. `from` may be one of the targets.
 * At most FLOW_MAX_TARGETS targets. Errors: -ENOMEM.
 */
int flow_trace(struct linkage *linkage, struct place from, const struct place *targets,
	       size_t target_count, struct flow *ret);
void flow_fini(struct flow *flow);

static inline void cleanup_flow(struct flow *flow)
{
	flow_fini(flow);
}

#endif
