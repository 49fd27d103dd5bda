/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probe points of a process: candidates -> those that count -> placement, and the return addresses
 * by which nested calls are told.
 */
#include "probe/points.h"

#include <errno.h>
#include <string.h>

#include "probe/candidates.h"
#include "probe/placement.h"

/* Placement looks at the function's own jumps: allocators' entries are far below this. */
#define FUNCTION_MAX_SIZE 65536u

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

/* Where a call of an allocation function ends up, by return address. */
static void find_callees(struct candidates *candidates, const struct flow_return *ret, bool *nested,
			 bool *foreign)
{
	*nested = false;
	*foreign = ret->target == FLOW_UNKNOWN;
	candidates_clear(candidates);
	if (ret->target != FLOW_UNKNOWN)
		candidates_spread(candidates, ret->target, false);
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *inner = &candidates->entries[i];

		if (!candidates->reached[i])
			continue;
		if (!candidate_counts(inner))
			*foreign |= inner->flow.unknown_tail;
		else if (inner->place.module == ret->place.module)
			*nested = true;
		else
			*foreign = true;
	}
}

static int add_nested(struct linkage *linkage, struct candidates *candidates,
		      const struct candidate *outer, struct module_points *module)
{
	int err = 0;

	for (size_t i = 0; i < outer->flow.return_count && !err; i++) {
		const struct flow_return *ret = &outer->flow.returns[i];
		bool nested, foreign;
		uint64_t offset;

		/* Behind a call that ends its segment nothing is returned to. */
		if (!candidate_owns(outer, ret) ||
		    image_vaddr_to_offset(linkage_image(linkage, ret->place.module),
					  ret->place.vaddr, &offset))
			continue;
		if (offset > UINT32_MAX)
			return -E2BIG;
		find_callees(candidates, ret, &nested, &foreign);
		if (nested)
			err = add_offset(&module->nested, &module->nested_count, offset);
		if (foreign && !err)
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

static int add_point(struct linkage *linkage, struct candidates *candidates,
		     const struct candidate *candidate, bool plain_entries,
		     struct module_points *module)
{
	int err;

	if (!candidate_counts(candidate)) {
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
	return candidate_frees(candidate) ? 0 : add_nested(linkage, candidates, candidate, module);
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
 * A function that throws through a return probe would end the program. With a probe where its
 * exceptions begin that is mended (throw_enter() in bpf/); else the return must not be probed.
 */
static void settle_throwing(struct linkage *linkage, struct candidates *candidates,
			    struct probe_points *points, bool has_unwinder)
{
	for (size_t i = 0; i < candidates->count; i++) {
		struct candidate *candidate = &candidates->entries[i];

		if (!candidate->linked->function->throws || !candidate_counts(candidate) ||
		    !linkage_can_throw(linkage, candidate->place.module))
			continue;
		if (has_unwinder && linkage_has_known_unwinder(linkage, candidate->place.module))
			points->modules[candidate->place.module].throws = true;
		else if (candidate->linked->function->kind == PROBE_REALLOC ||
			 candidate->linked->function->kind == PROBE_REALLOCARRAY)
			candidate_leave_out(candidate, "it may throw an exception", NULL);
		else
			candidate->flags |= PROBE_ENTRY_ONLY;
	}
}

static int find(struct linkage *linkage, const struct points_options *options,
		struct candidates *candidates, struct probe_points *points)
{
	bool has_unwinder = false;
	int err;

	err = candidates_find(linkage, candidates);
	if (!err)
		err = candidates_decide(linkage, candidates);
	if (err)
		return err;
	for (size_t i = 0; i < candidates->count; i++)
		points->truncated |= candidates->entries[i].flow.truncated;
	find_unwinders(linkage, points, &has_unwinder);
	settle_throwing(linkage, candidates, points, has_unwinder);
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
	struct candidates candidates CLEANUP(candidates) = {};
	int err;

	if (!points)
		return -ENOMEM;
	points->modules = calloc(linkage_count(linkage) + 1, sizeof(*points->modules));
	if (!points->modules)
		return -ENOMEM;
	points->module_count = linkage_count(linkage);
	err = find(linkage, options, &candidates, points);
	if (err)
		return err;
	*ret = take_ptr(points);
	return 0;
}
