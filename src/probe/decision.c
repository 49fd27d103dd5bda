/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every allocation must be counted once, whichever functions it passes through:
 *  - a function that only delegates (libstdc++'s operator new, a forwarder that LD_PRELOAD brings)
 *    is left out, the one it calls counts;
 *  - where one calls another on some ways only, the outer one counts, and the inner one is
 *    recognized by its return address. This must not be that of a call on behalf of a function that
 *    is left out, so some that delegate count nevertheless;
 *  - where it jumps to the other instead, there is no such address. realloc(NULL) and small
 *    alignments are told apart by the outer one's arguments, which leaves them to malloc. What
 *    remains cannot be told apart: the one lower in the catalog is left out.
 * A free that is seen twice does no harm: the second finds no record. One that is not seen does.
 */
#include "probe/candidates.h"

#include <errno.h>
#include <string.h>

void candidate_leave_out(struct candidate *candidate, const char *reason,
			 const struct candidate *other)
{
	candidate->left_out = (struct left_out){
		.name = candidate->linked->name,
		.reason = reason,
		.other = other ? other->linked->name : NULL,
	};
}

static bool outranks(const struct candidate *a, const struct candidate *b)
{
	return a->linked->function < b->linked->function;
}

static bool allocates(const struct candidates *candidates, uint32_t module)
{
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *candidate = &candidates->entries[i];

		if (candidate->place.module == module && candidate_counts(candidate) &&
		    !candidate_frees(candidate))
			return true;
	}
	return false;
}

static bool resizes(const struct candidate *candidate)
{
	switch (candidate->linked->function->kind) {
	case PROBE_REALLOC:
	case PROBE_REALLOCARRAY:
	case PROBE_RESIZE:
		return true;
	default:
		return false;
	}
}

bool candidate_owns(const struct candidate *candidate, const struct flow_return *ret)
{
	return !ret->shared || candidate->flow.delegates || resizes(candidate);
}

static bool aligns(const struct candidate *candidate)
{
	switch (candidate->linked->function->kind) {
	case PROBE_MEMALIGN:
	case PROBE_OUT_ALLOC:
		return true;
	default:
		return false;
	}
}

/* Whether all that the outer function does is seen if only the inner one is probed. */
static bool stands_for(const struct candidates *candidates, const struct candidate *inner,
		       const struct candidate *outer)
{
	/* One that calls malloc may give the old block back by itself. */
	if (resizes(outer))
		return resizes(inner);
	/* One that calls malloc for more gives out an address further on. */
	if (aligns(outer))
		return aligns(inner);
	/* What an allocator counts it must see freed; what comes before the block may be its own.
	 */
	if (candidate_frees(outer) && inner->place.module != outer->place.module)
		return !allocates(candidates, outer->place.module);
	return true;
}

/* Marks as reached what the candidate jumps to and calls, and what these lead to. */
static void spread_flow(struct candidates *candidates, const struct candidate *candidate)
{
	const struct flow *flow = &candidate->flow;

	for (size_t i = 0; i < flow->tail_count; i++)
		candidates_spread(candidates, flow->tails[i], true);
	for (size_t i = 0; i < flow->return_count; i++)
		if (flow->returns[i].target != FLOW_UNKNOWN)
			candidates_spread(candidates, flow->returns[i].target, true);
}

/* A candidate that counts for what this one does. */
static const struct candidate *find_inner(struct candidates *candidates,
					  const struct candidate *outer)
{
	candidates_clear(candidates);
	spread_flow(candidates, outer);
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *inner = &candidates->entries[i];

		if (candidates->reached[i] && inner != outer && candidate_counts(inner) &&
		    stands_for(candidates, inner, outer))
			return inner;
	}
	return NULL;
}

static bool leads_anywhere(const struct flow *flow)
{
	for (size_t i = 0; i < flow->return_count; i++)
		if (flow->returns[i].target == FLOW_UNKNOWN)
			return true;
	return flow->unknown_tail;
}

/* Any function of another module: where a pointer leads that is not set yet is not known. */
static const struct candidate *find_other_module(const struct candidates *candidates,
						 const struct candidate *outer)
{
	if (!leads_anywhere(&outer->flow))
		return NULL;
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *other = &candidates->entries[i];

		if (other->place.module != outer->place.module && candidate_counts(other) &&
		    other->linked->function == outer->linked->function &&
		    stands_for(candidates, other, outer))
			return other;
	}
	return NULL;
}

/* From the bottom of the catalog, so that each still finds the one that it delegates to. */
static void leave_out_delegating(struct candidates *candidates, bool frees)
{
	for (size_t rank = catalog_function_count; rank-- > 0;) {
		for (size_t i = 0; i < candidates->count; i++) {
			struct candidate *outer = &candidates->entries[i];
			const struct candidate *inner;

			if (outer->linked->function != &catalog_functions[rank] ||
			    candidate_frees(outer) != frees || !outer->flow.delegates)
				continue;
			inner = find_inner(candidates, outer);
			if (!inner)
				inner = find_other_module(candidates, outer);
			if (inner)
				candidate_leave_out(outer, "it only calls another", inner);
			outer->left_out.delegates = inner;
		}
	}
}

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->module != y->module)
		return x->module < y->module ? -1 : 1;
	return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

/* Behind the calls of all allocation functions that count, sorted. */
struct places {
	struct place *entries;
	size_t count;
};

static void collect_places(const struct candidates *candidates, struct places *places)
{
	places->count = 0;
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *outer = &candidates->entries[i];

		if (!candidate_counts(outer) || candidate_frees(outer))
			continue;
		for (size_t j = 0; j < outer->flow.return_count; j++)
			if (candidate_owns(outer, &outer->flow.returns[j]))
				places->entries[places->count++] = outer->flow.returns[j].place;
	}
	if (places->count)
		qsort(places->entries, places->count, sizeof(*places->entries), compare_places);
}

static bool shares_call(const struct candidate *candidate, const struct places *places)
{
	for (size_t i = 0; i < candidate->flow.return_count && places->count; i++)
		if (bsearch(&candidate->flow.returns[i].place, places->entries, places->count,
			    sizeof(*places->entries), compare_places))
			return true;
	return false;
}

/*
 * One that was left out, but makes calls: these are on behalf of one that counts if that one has
 * called it, and must then be told by their return addresses. So it has to count by itself.
 */
static bool restore_called(struct candidates *candidates, const struct places *places)
{
	bool changed = false;

	candidates_clear(candidates);
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *outer = &candidates->entries[i];

		if (candidate_counts(outer) && !candidate_frees(outer))
			spread_flow(candidates, outer);
	}
	for (size_t i = 0; i < candidates->count; i++) {
		struct candidate *candidate = &candidates->entries[i];

		if (candidate_counts(candidate) || candidate_frees(candidate) ||
		    candidate->flow.unknown_tail ||
		    !(shares_call(candidate, places) ||
		      (candidates->reached[i] && candidate->flow.return_count)))
			continue;
		candidate->left_out = (struct left_out){};
		changed = true;
	}
	return changed;
}

/*
 * Whether it calls other files' allocation functions, and does not jump to them. Through pointers
 * only a file does so that looks functions up; others call handlers, say.
 */
static bool calls_out(struct linkage *linkage, const struct candidates *candidates,
		      const struct candidate *candidate)
{
	const struct flow *flow = &candidate->flow;
	bool calls = false;

	for (size_t i = 0; i < flow->tail_count; i++)
		if (candidates->entries[flow->tails[i]].place.module != candidate->place.module)
			return false;
	for (size_t i = 0; i < flow->return_count; i++) {
		uint32_t target = flow->returns[i].target;

		if (target == FLOW_UNKNOWN)
			calls |= linkage_looks_up(linkage, candidate->place.module);
		else
			calls |=
				candidates->entries[target].place.module != candidate->place.module;
	}
	return calls && !flow->unknown_tail;
}

/*
 * What wraps others' blocks may give out other addresses than it gets, a header further on. Then
 * all its functions must count, or one could not find what another has noted.
 */
static bool restore_wrappers(struct linkage *linkage, struct candidates *candidates)
{
	bool changed = false;

	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *wrapper = &candidates->entries[i];

		if (!candidate_counts(wrapper) || candidate_frees(wrapper) ||
		    !calls_out(linkage, candidates, wrapper))
			continue;
		for (size_t j = 0; j < candidates->count; j++) {
			struct candidate *other = &candidates->entries[j];

			if (candidate_counts(other) || candidate_frees(other) ||
			    other->place.module != wrapper->place.module ||
			    other->linked->family != wrapper->linked->family ||
			    !calls_out(linkage, candidates, other))
				continue;
			other->left_out = (struct left_out){};
			changed = true;
		}
	}
	return changed;
}

static int restore(struct linkage *linkage, struct candidates *candidates)
{
	_cleanup_free_ struct place *entries = NULL;
	struct places places;
	size_t all = 0;

	for (size_t i = 0; i < candidates->count; i++)
		all += candidates->entries[i].flow.return_count;
	places.entries = entries = calloc(all + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	do
		collect_places(candidates, &places);
	while (restore_wrappers(linkage, candidates) || restore_called(candidates, &places));
	return 0;
}

/* By which arguments the outer function can tell that it will jump to malloc. */
static uint8_t skip_flags(const struct candidate *outer, const struct candidate *inner)
{
	if (inner->linked->function != &catalog_functions[0] ||
	    inner->place.module != outer->place.module)
		return 0;
	switch (outer->linked->function->kind) {
	case PROBE_REALLOC:
		return PROBE_SKIP_NULL_OLD;
	case PROBE_MEMALIGN:
	case PROBE_OUT_ALLOC:
		return PROBE_SKIP_SMALL_ALIGN;
	default:
		return 0;
	}
}

/*
 * glibc's valloc and pvalloc jump to what memalign jumps to, but with the page size as alignment:
 * malloc is not reached when they run.
 */
static bool is_page_aligned(const struct candidate *candidate)
{
	const char *name = candidate->linked->function->name;

	return !strcmp(name, "valloc") || !strcmp(name, "pvalloc");
}

static void settle_jump(struct candidate *outer, struct candidate *inner)
{
	if (outranks(inner, outer))
		candidate_leave_out(outer, "on some ways it jumps to another", inner);
	else
		candidate_leave_out(inner, "another jumps to it on some ways", outer);
}

static void settle_jumps_of(struct candidates *candidates, struct candidate *outer)
{
	candidates_clear(candidates);
	for (size_t i = 0; i < outer->flow.tail_count; i++) {
		uint32_t tail = outer->flow.tails[i];
		uint8_t flags = skip_flags(outer, &candidates->entries[tail]);

		outer->flags |= flags;
		if (!flags)
			candidates_spread(candidates, tail, false);
	}
	for (size_t i = 0; i < candidates->count && candidate_counts(outer); i++) {
		struct candidate *inner = &candidates->entries[i];

		if (candidates->reached[i] && inner != outer && candidate_counts(inner))
			settle_jump(outer, inner);
	}
}

/*
 * A forwarder with a way of its own, mostly for what is allocated while dlsym() runs. By their name
 * all calls find the first file's function, so the others are reached through it. The order of the
 * files is certain before they run only. Where nothing is looked up, the pointer is a hook of its
 * own.
 */
static void settle_unknown_jump(struct linkage *linkage, struct candidates *candidates,
				struct candidate *outer)
{
	bool first = outer->linked->exported && !linkage_is_loaded(linkage, outer->place.module);

	if (!linkage_looks_up(linkage, outer->place.module))
		return;
	for (size_t i = 0; i < candidates->count && candidate_counts(outer); i++) {
		struct candidate *other = &candidates->entries[i];

		if (other->place.module == outer->place.module || !candidate_counts(other) ||
		    other->linked->function != outer->linked->function)
			continue;
		if (other->place.module < outer->place.module)
			first &= !other->linked->exported;
		else if (first)
			candidate_leave_out(other, "another jumps to it on some ways", outer);
		else
			candidate_leave_out(outer, "on some ways it jumps to another", other);
	}
}

int candidates_decide(struct linkage *linkage, struct candidates *candidates)
{
	int err;

	leave_out_delegating(candidates, false);
	err = restore(linkage, candidates);
	if (err)
		return err;
	for (size_t i = 0; i < candidates->count; i++) {
		struct candidate *outer = &candidates->entries[i];

		if (candidate_counts(outer) && !candidate_frees(outer) && !is_page_aligned(outer))
			settle_jumps_of(candidates, outer);
		if (candidate_counts(outer) && !candidate_frees(outer) && outer->flow.unknown_tail)
			settle_unknown_jump(linkage, candidates, outer);
	}
	leave_out_delegating(candidates, true);
	return 0;
}
