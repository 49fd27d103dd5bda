/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probe points of an image: catalog x symbols -> addresses, each once -> placement -> flow.
 *
 * Against double counting, where one allocation function reaches another:
 *  - by jumps alone: only for arguments that are told apart at entry (realloc(NULL), a small
 *    alignment); the outer function skips these, the inner one counts;
 *  - by a call: the inner one is recognized by its return address, the outer one counts.
 */
#include "probe/points.h"

#include <errno.h>

#include "probe/catalog.h"
#include "probe/flow.h"
#include "probe/placement.h"

/* Placement looks at the function's own jumps: allocators' entries are far below this. */
#define FUNCTION_MAX_SIZE 65536u

#define POINTS_MAX 31
_Static_assert(POINTS_MAX < FLOW_MAX_TARGETS, "every point can be a target of flow_trace()");

/* One point while it is being worked out. */
struct candidate {
	const struct catalog_function *function;
	const struct symbol *symbol;
};

struct candidates {
	struct candidate entries[POINTS_MAX];
	size_t count;
};

void probe_points_free(struct probe_points *points)
{
	if (!points)
		return;
	free(points->entries);
	free(points);
}

static bool candidates_have(const struct candidates *candidates, uint64_t start)
{
	for (size_t i = 0; i < candidates->count; i++)
		if (candidates->entries[i].symbol->start == start)
			return true;
	return false;
}

static void candidates_find(struct image *image, const struct symtab *symtab,
			    struct candidates *ret)
{
	bool allocates = false, frees = false;
	uint64_t offset;

	*ret = (struct candidates){};
	for (size_t i = 0; i < catalog_function_count && ret->count < POINTS_MAX; i++) {
		const struct catalog_function *function = &catalog_functions[i];
		const struct symbol *symbol = symtab_find(symtab, function->name);

		/* At an ifunc's address is the function that chooses the real one. */
		if (!symbol || symbol->ifunc ||
		    image_vaddr_to_offset(image, symbol->start, &offset))
			continue;
		allocates |= function->kind == PROBE_ALLOC;
		frees |= function->kind == PROBE_FREE;
		if (!candidates_have(ret, symbol->start))
			ret->entries[ret->count++] = (struct candidate){function, symbol};
	}
	if (!allocates || !frees)
		ret->count = 0;
}

static int place(struct image *image, const struct candidate *candidate, struct probe_point *ret)
{
	const struct catalog_function *function = candidate->function;
	uint64_t size = candidate->symbol->size;
	struct placement placement;
	const uint8_t *code;
	uint64_t offset;
	size_t code_size = 0;

	code = image_bytes(image, candidate->symbol->start,
			   size < FUNCTION_MAX_SIZE ? size : FUNCTION_MAX_SIZE, &code_size);
	placement = placement_choose(code, code ? code_size : 0, function);
	if (image_vaddr_to_offset(image, candidate->symbol->start, &offset))
		return -ERANGE;
	if (offset > UINT32_MAX - placement.offset)
		return -E2BIG;
	*ret = (struct probe_point){
		.name = function->name,
		.entry_offset = offset,
		.why_entry = placement.why_entry,
		.spec =
			{
				.kind = function->kind,
				.size_reg = placement.size_reg,
				.aux_reg = placement.aux_reg,
				.ptr_reg = placement.ptr_reg,
				.offset = (uint32_t)offset + placement.offset,
			},
	};
	return 0;
}

/* Adds an offset in order; one that is there already is not added again. */
static int nested_add(struct nested_calls *nested, uint32_t offset)
{
	size_t i = nested->count;

	while (i && nested->return_offsets[i - 1] > offset)
		i--;
	if (i && nested->return_offsets[i - 1] == offset)
		return 0;
	if (nested->count == PROBE_MAX_NESTED_CALLS)
		return -E2BIG;
	for (size_t j = nested->count; j > i; j--)
		nested->return_offsets[j] = nested->return_offsets[j - 1];
	nested->return_offsets[i] = offset;
	nested->count++;
	return 0;
}

static int nested_add_flow(struct image *image, struct nested_calls *nested,
			   const struct flow *flow)
{
	for (size_t i = 0; i < flow->return_count; i++) {
		uint64_t offset;
		int err = image_vaddr_to_offset(image, flow->returns[i], &offset);

		/* Behind a call that ends its segment nothing is returned to. */
		if (err)
			continue;
		err = offset <= UINT32_MAX ? nested_add(nested, (uint32_t)offset) : -E2BIG;
		if (err)
			return err;
	}
	return 0;
}

static uint8_t skip_flags(const struct catalog_function *function)
{
	switch (function->kind) {
	case PROBE_REALLOC:
		return PROBE_SKIP_NULL_OLD;
	case PROBE_MEMALIGN:
	case PROBE_OUT_ALLOC:
		return PROBE_SKIP_SMALL_ALIGN;
	default:
		/*
		 * valloc and pvalloc of glibc jump to what memalign jumps to, but with the page
		 * size as alignment: malloc is not reached when they run.
		 */
		return 0;
	}
}

static int trace_points(struct image *image, const struct candidates *candidates,
			struct probe_points *points)
{
	uint64_t targets[POINTS_MAX];
	uint32_t malloc_bits = 0;
	size_t target_count = 0;

	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *candidate = &candidates->entries[i];

		if (candidate->function->kind == PROBE_FREE)
			continue;
		/* malloc is the catalog's first, so an address it shares with others is its own. */
		if (candidate->function == &catalog_functions[0])
			malloc_bits = 1u << target_count;
		targets[target_count++] = candidate->symbol->start;
	}
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *candidate = &candidates->entries[i];
		struct flow flow __attribute__((cleanup(cleanup_flow))) = {};
		int err;

		if (candidate->function->kind == PROBE_FREE)
			continue;
		err = flow_trace(image, candidate->symbol->start, targets, target_count, &flow);
		if (!err)
			err = nested_add_flow(image, &points->nested, &flow);
		if (err)
			return err;
		if (flow.tail_targets & malloc_bits)
			points->entries[i].spec.flags |= skip_flags(candidate->function);
	}
	return 0;
}

int probe_points_find(struct image *image, const struct symtab *symtab, struct probe_points **ret)
{
	struct probe_points *points CLEANUP(probe_points) = calloc(1, sizeof(*points));
	struct candidates candidates;
	int err;

	if (!points)
		return -ENOMEM;
	candidates_find(image, symtab, &candidates);
	points->entries = calloc(candidates.count ? candidates.count : 1, sizeof(*points->entries));
	if (!points->entries)
		return -ENOMEM;
	for (size_t i = 0; i < candidates.count; i++) {
		err = place(image, &candidates.entries[i], &points->entries[i]);
		if (err)
			return err;
		points->count++;
	}
	err = trace_points(image, &candidates, points);
	if (err)
		return err;
	*ret = take_ptr(points);
	return 0;
}
