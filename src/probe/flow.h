/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the allocation functions of a process reach each other. */
#ifndef HEAPTAP_PROBE_FLOW_H
#define HEAPTAP_PROBE_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/linkage.h"

#define FLOW_MAX_TARGETS 1024

/*
 * Calls below a target. glibc 2.36 needs one (posix_memalign to _mid_memalign). Deeper code is
 * shared with paths that do not start in an allocator: taking its calls for nested would lose
 * allocations.
 */
#define FLOW_MAX_DEPTH 3u

/* The target of a call through a pointer of which only running code knows where it leads. */
#define FLOW_UNKNOWN UINT32_MAX

/* Behind a call: where a target returns to that was entered on behalf of the function. */
struct flow_return {
	struct place place;
	uint32_t target; /* index in the targets, or FLOW_UNKNOWN */
	bool shared;	 /* other functions of the module make this call, too */
};

struct flow {
	/* Indexes of targets reached by jumps alone: these return to the function's caller. */
	uint32_t *tails;
	size_t tail_count;
	bool unknown_tail; /* also where only running code knows */
	/* Also behind calls of functions that end in a jump to a target. */
	struct flow_return *returns;
	size_t return_count;
	/*
	 * Every way out of the function leads through a target, or returns a constant as a failure
	 * does: the function does nothing by itself.
	 */
	bool delegates;
	bool truncated; /* a bound was reached: there may be more */
};

struct flow_graph;

/*
 * Follows the code of a module from those of the targets that lie in it, through jumps and calls,
 * up to other targets, within the module, and max_depth calls down. The linkage and the targets
 * must outlive the graph. At most FLOW_MAX_TARGETS targets. Errors: -ENOMEM.
 */
int flow_graph_new(struct linkage *linkage, uint32_t module, const struct place *targets,
		   size_t target_count, unsigned int max_depth, struct flow_graph **ret);
void flow_graph_free(struct flow_graph *graph);
DEFINE_CLEANUP(flow_graph, struct flow_graph *, flow_graph_free)

/* What a function returns, and so how it fails. */
enum flow_result {
	FLOW_RETURNS_BLOCK,   /* malloc(): any constant */
	FLOW_RETURNS_ERROR,   /* posix_memalign(): a constant that is not 0 */
	FLOW_RETURNS_NOTHING, /* free(): it does not tell */
};

/* What one of these targets reaches. Errors: -ENOMEM. */
int flow_graph_query(const struct flow_graph *graph, size_t target, enum flow_result result,
		     struct flow *ret);
void flow_fini(struct flow *flow);

static inline void cleanup_flow(struct flow *flow)
{
	flow_fini(flow);
}

#endif
