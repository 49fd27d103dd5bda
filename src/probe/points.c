/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probe points of a process: catalog x symbols -> candidates, each address once -> flow -> those
 * that count -> placement.
 *
 * Every allocation must be counted once, whichever functions it passes through:
 *  - a function that only delegates (libstdc++'s operator new, a forwarder that LD_PRELOAD brings)
 *    is left out, the one it calls counts;
 *  - where one calls another on some ways only, the outer one counts, and the inner one is
 *    recognized by its return address;
 *  - where it jumps to the other instead, there is no such address. realloc(NULL) and small
 *    alignments are told apart by the outer one's arguments, which leaves them to malloc. What
 *    remains cannot be told apart: the one lower in the catalog is left out.
 * A free that is seen twice does no harm: the second finds no record.
 */
#include "probe/points.h"

#include <errno.h>
#include <string.h>

#include "probe/flow.h"
#include "probe/placement.h"

/* Placement looks at the function's own jumps: allocators' entries are far below this. */
#define FUNCTION_MAX_SIZE 65536u

struct candidate {
	const struct linked_function *linked;
	struct place place;
	struct flow flow;
	struct left_out left_out; /* reason is NULL if it counts */
	uint8_t flags;		  /* PROBE_SKIP_* */
};

struct candidates {
	struct candidate *entries;
	size_t count;
};

static void candidates_fini(struct candidates *candidates)
{
	for (size_t i = 0; i < candidates->count; i++)
		flow_fini(&candidates->entries[i].flow);
	free(candidates->entries);
}

void probe_points_free(struct probe_points *points)
{
	if (!points)
		return;
	for (size_t i = 0; i < points->module_count; i++) {
		free(points->modules[i].entries);
		free(points->modules[i].nested);
		free(points->modules[i].foreign);
		free(points->modules[i].left_out);
	}
	free(points->modules);
	free(points);
}

static bool is_free(const struct candidate *candidate)
{
	return candidate->linked->function->kind == PROBE_FREE;
}

static bool outranks(const struct linked_function *a, const struct linked_function *b)
{
	return a->function < b->function;
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
	else if (outranks(linked, known->linked))
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
	if (!ret->entries)
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
			size_t *end, struct candidates *candidates)
{
	struct flow_graph *graph CLEANUP(flow_graph) = NULL;
	uint32_t module = targets->places[begin].module;
	int err;

	err = flow_graph_new(linkage, module, targets->places, targets->count, &graph);
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
		if (is_free(&candidates->entries[i]) != frees)
			continue;
		targets.places[targets.count] = candidates->entries[i].place;
		targets.candidates[targets.count++] = i;
	}
	while (next < targets.count && !err)
		err = trace_module(linkage, &targets, next, &next, candidates);
	return err;
}

static int trace_candidates(struct linkage *linkage, struct candidates *candidates, bool *truncated)
{
	int err = trace_kind(linkage, candidates, false);

	if (!err)
		err = trace_kind(linkage, candidates, true);
	for (size_t i = 0; i < candidates->count; i++)
		*truncated |= candidates->entries[i].flow.truncated;
	return err;
}

static bool counts(const struct candidate *candidate)
{
	return !candidate->left_out.reason;
}

static void leave_out(struct candidate *candidate, const char *reason,
		      const struct candidate *other)
{
	candidate->left_out = (struct left_out){
		.name = candidate->linked->name,
		.reason = reason,
		.other = other ? other->linked->name : NULL,
	};
}

/* A candidate that this one reaches and that counts. */
static const struct candidate *find_inner(const struct candidates *candidates,
					  const struct candidate *outer)
{
	const struct candidate *entries = candidates->entries;

	for (size_t i = 0; i < outer->flow.tail_count; i++) {
		const struct candidate *inner = &entries[outer->flow.tails[i]];

		if (inner != outer && counts(inner))
			return inner;
	}
	for (size_t i = 0; i < outer->flow.return_count; i++) {
		uint32_t target = outer->flow.returns[i].target;

		if (target != FLOW_UNKNOWN && &entries[target] != outer && counts(&entries[target]))
			return &entries[target];
	}
	return NULL;
}

/* Any function of another module: where a pointer leads that is not set yet is not known. */
static const struct candidate *find_other_module(const struct candidates *candidates,
						 const struct candidate *outer)
{
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *other = &candidates->entries[i];

		if (other->place.module != outer->place.module && counts(other) &&
		    other->linked->function == outer->linked->function)
			return other;
	}
	return NULL;
}

/* From the bottom of the catalog, so that each still finds the one that it delegates to. */
static void leave_out_delegating(struct candidates *candidates)
{
	for (size_t rank = catalog_function_count; rank-- > 0;) {
		for (size_t i = 0; i < candidates->count; i++) {
			struct candidate *outer = &candidates->entries[i];
			const struct candidate *inner;

			if (outer->linked->function != &catalog_functions[rank] ||
			    !outer->flow.delegates)
				continue;
			inner = find_inner(candidates, outer);
			if (!inner)
				inner = find_other_module(candidates, outer);
			if (inner)
				leave_out(outer, "it only calls another", inner);
		}
	}
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
	uint8_t flags;

	if (!counts(inner) || inner == outer || is_page_aligned(outer))
		return;
	flags = skip_flags(outer, inner);
	outer->flags |= flags;
	if (flags)
		return;
	if (outranks(inner->linked, outer->linked))
		leave_out(outer, "on some ways it jumps to another", inner);
	else
		leave_out(inner, "another jumps to it on some ways", outer);
}

static void settle_jumps(struct candidates *candidates)
{
	for (size_t i = 0; i < candidates->count; i++) {
		struct candidate *outer = &candidates->entries[i];

		for (size_t j = 0; j < outer->flow.tail_count; j++)
			if (!is_free(outer) && counts(outer))
				settle_jump(outer, &candidates->entries[outer->flow.tails[j]]);
	}
}

static int add_offset(uint32_t **offsets, size_t *count, uint32_t offset)
{
	uint32_t *grown;

	for (size_t i = 0; i < *count; i++)
		if ((*offsets)[i] == offset)
			return 0;
	grown = reallocarray(*offsets, *count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*offsets = grown;
	grown[(*count)++] = offset;
	return 0;
}

static int add_nested(struct linkage *linkage, const struct candidates *candidates,
		      const struct candidate *outer, struct module_points *module)
{
	int err = 0;

	for (size_t i = 0; i < outer->flow.return_count && !err; i++) {
		const struct flow_return *ret = &outer->flow.returns[i];
		const struct candidate *inner =
			ret->target == FLOW_UNKNOWN ? NULL : &candidates->entries[ret->target];
		uint64_t offset;

		/* Behind a call that ends its segment nothing is returned to. */
		if (image_vaddr_to_offset(linkage_image(linkage, ret->place.module),
					  ret->place.vaddr, &offset))
			continue;
		if (offset > UINT32_MAX)
			return -E2BIG;
		if (inner && inner->place.module == ret->place.module)
			err = add_offset(&module->nested, &module->nested_count, offset);
		else
			err = add_offset(&module->foreign, &module->foreign_count, offset);
	}
	return err;
}

static int place(struct linkage *linkage, const struct candidate *candidate, bool plain_entries,
		 struct probe_point *ret)
{
	const struct catalog_function *function = candidate->linked->function;
	struct image *image = linkage_image(linkage, candidate->place.module);
	uint64_t size = candidate->linked->size;
	struct placement placement;
	const uint8_t *code;
	uint64_t offset;
	size_t code_size = 0;

	code = image_bytes(image, candidate->place.vaddr,
			   size < FUNCTION_MAX_SIZE ? size : FUNCTION_MAX_SIZE, &code_size);
	placement = placement_choose(code, code && !plain_entries ? code_size : 0, function);
	if (plain_entries)
		placement.why_entry = "this was asked for";
	if (image_vaddr_to_offset(image, candidate->place.vaddr, &offset))
		return -ERANGE;
	if (offset > UINT32_MAX - placement.offset)
		return -E2BIG;
	*ret = (struct probe_point){
		.name = candidate->linked->name,
		.entry_offset = offset,
		.why_entry = placement.why_entry,
		.spec =
			{
				.kind = function->kind,
				.flags = candidate->flags,
				.size_reg = placement.size_reg,
				.aux_reg = placement.aux_reg,
				.ptr_reg = placement.ptr_reg,
				.offset = (uint32_t)offset + placement.offset,
			},
	};
	return 0;
}

static int add_point(struct linkage *linkage, const struct candidates *candidates,
		     const struct candidate *candidate, bool plain_entries,
		     struct module_points *module)
{
	int err;

	if (!counts(candidate)) {
		struct left_out *left_out = reallocarray(
			module->left_out, module->left_out_count + 1, sizeof(*left_out));

		if (!left_out)
			return -ENOMEM;
		module->left_out = left_out;
		left_out[module->left_out_count++] = candidate->left_out;
		return 0;
	}
	if (!module->entries)
		module->entries = calloc(candidates->count, sizeof(*module->entries));
	if (!module->entries)
		return -ENOMEM;
	err = place(linkage, candidate, plain_entries, &module->entries[module->count]);
	if (err)
		return err;
	module->count++;
	return is_free(candidate) ? 0 : add_nested(linkage, candidates, candidate, module);
}

/* Where the unwinder's probe sits: as cheap as an allocation's, but with nothing to read. */
static void find_unwinders(struct linkage *linkage, struct probe_points *points, bool *found)
{
	static const struct catalog_function unwinder = {
		.kind = PROBE_ALLOC,
		.size_arg = CATALOG_NO_ARG,
		.aux_arg = CATALOG_NO_ARG,
		.ptr_arg = CATALOG_NO_ARG,
	};

	for (size_t m = 0; m < points->module_count; m++) {
		struct module_points *module = &points->modules[m];
		struct image *image = linkage_image(linkage, m);
		struct placement placement;
		const uint8_t *code;
		uint64_t vaddr, size;
		size_t code_size = 0;

		if (!linkage_unwinder(linkage, m, &vaddr, &size) ||
		    image_vaddr_to_offset(image, vaddr, &module->throw_offset))
			continue;
		code = image_bytes(image, vaddr,
				   size < FUNCTION_MAX_SIZE ? size : FUNCTION_MAX_SIZE, &code_size);
		placement = placement_choose(code, code ? code_size : 0, &unwinder);
		module->throw_offset += placement.offset;
		module->has_unwinder = true;
		*found = true;
	}
}

/*
 * A function that throws through a return probe would end the program. With a probe where
 * exceptions begin that is mended (throw_enter() in bpf/); else the return must not be probed.
 */
static void settle_throwing(struct candidates *candidates, struct probe_points *points, bool mended)
{
	for (size_t i = 0; i < candidates->count; i++) {
		struct candidate *candidate = &candidates->entries[i];

		if (!candidate->linked->function->throws || !counts(candidate))
			continue;
		if (mended)
			points->modules[candidate->place.module].throws = true;
		else if (candidate->linked->function->kind == PROBE_REALLOC ||
			 candidate->linked->function->kind == PROBE_REALLOCARRAY)
			leave_out(candidate, "it may throw an exception", NULL);
		else
			candidate->flags |= PROBE_ENTRY_ONLY;
	}
}

static int find(struct linkage *linkage, const struct points_options *options,
		struct candidates *candidates, struct probe_points *points)
{
	bool has_unwinder = false;
	int err;

	err = find_candidates(linkage, candidates);
	if (!err)
		err = trace_candidates(linkage, candidates, &points->truncated);
	if (err)
		return err;
	leave_out_delegating(candidates);
	settle_jumps(candidates);
	find_unwinders(linkage, points, &has_unwinder);
	settle_throwing(candidates, points, has_unwinder);
	for (size_t i = 0; i < candidates->count && !err; i++) {
		const struct candidate *candidate = &candidates->entries[i];

		err = add_point(linkage, candidates, candidate, options->plain_entries,
				&points->modules[candidate->place.module]);
	}
	return err;
}

int probe_points_find(struct linkage *linkage, const struct points_options *options,
		      struct probe_points **ret)
{
	struct probe_points *points CLEANUP(probe_points) = calloc(1, sizeof(*points));
	struct candidates candidates = {};
	int err;

	if (!points)
		return -ENOMEM;
	points->module_count = linkage_count(linkage);
	points->modules = calloc(points->module_count + 1, sizeof(*points->modules));
	if (!points->modules)
		return -ENOMEM;
	err = find(linkage, options, &candidates, points);
	candidates_fini(&candidates);
	if (err)
		return err;
	*ret = take_ptr(points);
	return 0;
}
