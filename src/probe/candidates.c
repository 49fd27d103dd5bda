/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Catalog x symbols -> candidates, each address once -> flow. */
#include "probe/candidates.h"

#include <errno.h>
#include <string.h>

void candidates_fini(struct candidates *candidates)
{
	for (size_t i = 0; i < candidates->count; i++)
		flow_fini(&candidates->entries[i].flow);
	free(candidates->entries);
	free(candidates->reached);
	free(candidates->queue);
	*candidates = (struct candidates){};
}

/* Whether the functions of one family in a module are an allocator. */
static bool is_complete(const struct linked_function *functions, size_t count, unsigned int family)
{
	bool allocates = false, frees = false;

	for (size_t i = 0; i < count; i++) {
		if (functions[i].family != family)
			continue;
		if (functions[i].function->kind == PROBE_FREE)
			frees = true;
		else
			allocates = true;
	}
	return allocates && frees;
}

static struct candidate *candidate_at(const struct candidates *candidates, struct place place)
{
	for (size_t i = candidates->count; i-- > 0;) {
		struct candidate *candidate = &candidates->entries[i];

		if (candidate->place.module < place.module)
			break;
		if (candidate->place.vaddr == place.vaddr)
			return candidate;
	}
	return NULL;
}

/* Of functions that share an address the highest one stands for all. */
static void add_candidate(struct candidates *candidates, uint32_t module,
			  const struct linked_function *linked)
{
	const struct place place = {module, linked->start};
	struct candidate *known = candidate_at(candidates, place);

	if (!known)
		candidates->entries[candidates->count++] = (struct candidate){
			.linked = linked,
			.place = place,
		};
	else if (linked->function < known->linked->function)
		known->linked = linked;
}

static int find_candidates(struct linkage *linkage, struct candidates *ret)
{
	size_t modules = linkage_count(linkage), all = 0;

	for (size_t m = 0; m < modules; m++) {
		size_t count;

		linkage_functions(linkage, m, &count);
		all += count;
	}
	ret->entries = calloc(all + 1, sizeof(*ret->entries));
	ret->reached = calloc(all + 1, sizeof(*ret->reached));
	ret->queue = calloc(all + 1, sizeof(*ret->queue));
	if (!ret->entries || !ret->reached || !ret->queue)
		return -ENOMEM;
	for (size_t m = 0; m < modules; m++) {
		size_t count;
		const struct linked_function *functions = linkage_functions(linkage, m, &count);

		for (size_t i = 0; i < count; i++) {
			uint64_t offset;

			if (is_complete(functions, count, functions[i].family) &&
			    !image_vaddr_to_offset(linkage_image(linkage, m), functions[i].start,
						   &offset))
				add_candidate(ret, m, &functions[i]);
		}
	}
	return 0;
}

struct targets {
	struct place *places;
	uint32_t *candidates; /* by target */
	size_t count;
};

static void cleanup_targets(struct targets *targets)
{
	free(targets->places);
	free(targets->candidates);
}

static enum flow_result result_of(const struct candidate *candidate)
{
	switch (candidate->linked->function->kind) {
	case PROBE_OUT_ALLOC:
		return FLOW_RETURNS_ERROR;
	case PROBE_FREE:
		return FLOW_RETURNS_NOTHING;
	default:
		return FLOW_RETURNS_BLOCK;
	}
}

static int query(const struct flow_graph *graph, const struct targets *targets, size_t target,
		 struct candidate *candidate)
{
	struct flow *flow = &candidate->flow;
	int err = flow_graph_query(graph, target, result_of(candidate), flow);

	for (size_t i = 0; i < flow->tail_count && !err; i++)
		flow->tails[i] = targets->candidates[flow->tails[i]];
	for (size_t i = 0; i < flow->return_count && !err; i++)
		if (flow->returns[i].target != FLOW_UNKNOWN)
			flow->returns[i].target = targets->candidates[flow->returns[i].target];
	return err;
}

/* The targets of one module, which come one after the other, up to `end`. */
static int trace_module(struct linkage *linkage, const struct targets *targets, size_t begin,
			bool frees, size_t *end, struct candidates *candidates)
{
	struct flow_graph *graph CLEANUP(flow_graph) = NULL;
	uint32_t module = targets->places[begin].module;
	/* Of frees it only matters which of them delegate. */
	unsigned int depth = frees ? 1 : FLOW_MAX_DEPTH;
	int err;

	err = flow_graph_new(linkage, module, targets->places, targets->count, depth, &graph);
	for (*end = begin; !err && *end < targets->count; ++*end) {
		if (targets->places[*end].module != module)
			break;
		err = query(graph, targets, *end, &candidates->entries[targets->candidates[*end]]);
	}
	return err;
}

/* Frees matter to frees, and allocations to allocations. */
static int trace_kind(struct linkage *linkage, struct candidates *candidates, bool frees)
{
	struct targets targets CLEANUP(targets) = {
		.places = calloc(candidates->count + 1, sizeof(*targets.places)),
		.candidates = calloc(candidates->count + 1, sizeof(*targets.candidates)),
	};
	size_t next = 0;
	int err = 0;

	if (!targets.places || !targets.candidates)
		return -ENOMEM;
	for (size_t i = 0; i < candidates->count; i++) {
		if (candidate_frees(&candidates->entries[i]) != frees)
			continue;
		targets.places[targets.count] = candidates->entries[i].place;
		targets.candidates[targets.count++] = i;
	}
	while (next < targets.count && !err)
		err = trace_module(linkage, &targets, next, frees, &next, candidates);
	return err;
}

int candidates_find(struct linkage *linkage, struct candidates *ret)
{
	int err = find_candidates(linkage, ret);

	if (!err)
		err = trace_kind(linkage, ret, false);
	if (!err)
		err = trace_kind(linkage, ret, true);
	return err;
}

void candidates_clear(struct candidates *candidates)
{
	memset(candidates->reached, 0, candidates->count * sizeof(*candidates->reached));
}

static void reach(struct candidates *candidates, uint32_t index, size_t *count)
{
	if (candidates->reached[index])
		return;
	candidates->reached[index] = true;
	candidates->queue[(*count)++] = index;
}

void candidates_spread(struct candidates *candidates, uint32_t first, bool calls)
{
	size_t count = 0;

	reach(candidates, first, &count);
	for (size_t i = 0; i < count; i++) {
		const struct candidate *candidate = &candidates->entries[candidates->queue[i]];
		const struct flow *flow = &candidate->flow;

		if (candidate_counts(candidate))
			continue;
		for (size_t j = 0; j < flow->tail_count; j++)
			reach(candidates, flow->tails[j], &count);
		for (size_t j = 0; j < flow->return_count && calls; j++)
			if (flow->returns[j].target != FLOW_UNKNOWN)
				reach(candidates, flow->returns[j].target, &count);
	}
}
