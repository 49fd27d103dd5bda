/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A function that a target calls or jumps to is shared if any other function of the module does so
 * as well, or takes its address, or if it is reached from one that is shared. That is asked of the
 * whole text, byte by byte. Who gets there from outside of the module is not seen, nor what tables
 * of pointers lead to.
 */
#include "probe/code_sharing.h"

#include <errno.h>
#include <stdlib.h>

#include "elf/code.h"
#include "elf/functions.h"
#include "elf/reference.h"

#define CHUNK_SIZE (1u << 20)
#define OTHERS	   UINT32_MAX

/* Of parts, by index. */
struct edge {
	uint32_t from; /* or OTHERS */
	uint32_t to;
};

struct search {
	struct code_graph *graph;
	const struct functions *starts;
	struct edge *edges;
	size_t count;
	size_t capacity;
};

static int compare_parts(const void *a, const void *b)
{
	const struct code_part *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static struct code_part *find_part(const struct code_graph *graph, uint64_t start)
{
	struct code_part key = {.start = start};

	return graph->part_count
		       ? bsearch(&key, graph->parts, graph->part_count, sizeof(key), compare_parts)
		       : NULL;
}

/* The part that an instruction is in, by its end; NULL: none. */
static struct code_part *part_before(const struct code_graph *graph, const struct functions *starts,
				     uint64_t end)
{
	uint64_t start;

	return functions_find(starts, end - 1, &start) ? find_part(graph, start) : NULL;
}

/* By start, each once. */
static void sort_parts(struct code_graph *graph)
{
	size_t kept = 0;

	if (graph->part_count)
		qsort(graph->parts, graph->part_count, sizeof(*graph->parts), compare_parts);
	for (size_t i = 0; i < graph->part_count; i++)
		if (!kept || graph->parts[kept - 1].start != graph->parts[i].start)
			graph->parts[kept++] = graph->parts[i];
	graph->part_count = kept;
	for (size_t i = 0; i < graph->target_count; i++) {
		struct code_part *part = graph->targets[i].module == graph->module
						 ? find_part(graph, graph->targets[i].vaddr)
						 : NULL;

		if (part)
			part->is_target = true;
	}
}

static bool leads_to_target(const struct code_graph *graph, const struct call *call)
{
	const struct body *callee =
		call->callee == CODE_NO_BODY ? NULL : &graph->bodies[call->callee];

	return call->unknown || target_set_any(&call->targets) ||
	       (callee && (callee->unknown_tail || target_set_any(&callee->tails)));
}

/* Whether anything depends on the answer: a call that leads to a target, in no target itself. */
static bool is_needed(const struct search *search)
{
	const struct code_graph *graph = search->graph;

	for (size_t i = 0; i < graph->call_count; i++) {
		const struct call *call = &graph->calls[i];
		const struct code_part *part;

		if (!leads_to_target(graph, call))
			continue;
		part = part_before(graph, search->starts, call->return_address);
		if (part && !part->is_target)
			return true;
	}
	return false;
}

static int add_edge(struct search *search, const struct reference *reference)
{
	const struct code_graph *graph = search->graph;
	const struct code_part *to = find_part(graph, reference->to), *from;

	if (!to || to->is_target)
		return 0;
	if (search->count == search->capacity) {
		size_t capacity = search->capacity ? 2 * search->capacity : 256;
		struct edge *edges = reallocarray(search->edges, capacity, sizeof(*edges));

		if (!edges)
			return -ENOMEM;
		search->edges = edges;
		search->capacity = capacity;
	}
	from = part_before(graph, search->starts, reference->end);
	search->edges[search->count++] = (struct edge){
		.from = from ? from - graph->parts : OTHERS,
		.to = to - graph->parts,
	};
	return 0;
}

static int scan_segment(struct search *search, const struct code *code,
			const struct code_segment *segment, uint8_t *buffer)
{
	int err = 0;

	for (uint64_t done = 0; done < segment->size && !err; done += CHUNK_SIZE) {
		uint64_t left = segment->size - done;
		size_t wanted = left < CHUNK_SIZE + REFERENCE_MAX_SIZE
					? left
					: CHUNK_SIZE + REFERENCE_MAX_SIZE;
		size_t got = code_read(code, segment->offset + done, buffer, wanted);

		for (size_t at = 0; at < got && at < CHUNK_SIZE && !err; at++) {
			struct reference reference;

			if (reference_decode(buffer + at, got - at, segment->vaddr + done + at,
					     true, &reference))
				err = add_edge(search, &reference);
		}
	}
	return err;
}

static int scan(struct search *search)
{
	_cleanup_free_ uint8_t *buffer = malloc(CHUNK_SIZE + REFERENCE_MAX_SIZE);
	struct code code;
	int err = 0;

	if (!buffer)
		return -ENOMEM;
	if (code_load(linkage_image(search->graph->linkage, search->graph->module), &code))
		return 0;
	for (size_t i = 0; i < code.count && !err; i++)
		err = scan_segment(search, &code, &code.segments[i], buffer);
	return err;
}

static void mark(const struct search *search)
{
	struct code_part *parts = search->graph->parts;
	bool changed = true;

	while (changed) {
		changed = false;
		for (size_t i = 0; i < search->count; i++) {
			const struct edge *edge = &search->edges[i];

			if (parts[edge->to].is_shared ||
			    (edge->from != OTHERS && !parts[edge->from].is_shared))
				continue;
			parts[edge->to].is_shared = true;
			changed = true;
		}
	}
}

int code_sharing_find(struct code_graph *graph)
{
	struct search search = {
		.graph = graph,
		.starts = linkage_starts(graph->linkage, graph->module),
	};
	int err = 0;

	sort_parts(graph);
	if (is_needed(&search))
		err = scan(&search);
	if (!err)
		mark(&search);
	free(search.edges);
	return err;
}

bool code_sharing_has(const struct code_graph *graph, uint64_t end)
{
	const struct code_part *part =
		part_before(graph, linkage_starts(graph->linkage, graph->module), end);

	return part && part->is_shared;
}
