/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A sweep over the addresses. The ranges that have begun wait in a heap, the best on top; one that
 * has ended leaves when it gets to the top. A piece begins where a range begins or where the best
 * one ends, so there are at most two per range.
 */
#include "util/cover.h"

#include <errno.h>

struct piece {
	uint64_t start;
	uint32_t index;
};

struct cover {
	size_t count;
	struct piece *pieces;
};

struct sweep {
	const struct cover_range *ranges;
	bool (*better)(const void *arg, uint32_t a, uint32_t b);
	const void *arg;
	uint32_t *heap;
	size_t heap_count;
	struct cover *cover;
	uint64_t pos;
};

static void heap_push(struct sweep *sweep, uint32_t index)
{
	size_t i = sweep->heap_count++;

	while (i && sweep->better(sweep->arg, index, sweep->heap[(i - 1) / 2])) {
		sweep->heap[i] = sweep->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	sweep->heap[i] = index;
}

static void heap_pop(struct sweep *sweep)
{
	uint32_t index = sweep->heap[--sweep->heap_count];
	size_t i = 0;

	for (size_t child = 1; child < sweep->heap_count; child = 2 * i + 1) {
		if (child + 1 < sweep->heap_count &&
		    sweep->better(sweep->arg, sweep->heap[child + 1], sweep->heap[child]))
			child++;
		if (!sweep->better(sweep->arg, sweep->heap[child], index))
			break;
		sweep->heap[i] = sweep->heap[child];
		i = child;
	}
	sweep->heap[i] = index;
}

static void emit(struct sweep *sweep, uint32_t index)
{
	struct cover *cover = sweep->cover;

	if (cover->count ? cover->pieces[cover->count - 1].index == index : index == COVER_NONE)
		return;
	cover->pieces[cover->count++] = (struct piece){sweep->pos, index};
}

static void advance(struct sweep *sweep, uint64_t until)
{
	while (sweep->heap_count && sweep->pos < until) {
		uint32_t top = sweep->heap[0];
		uint64_t end = sweep->ranges[top].end;

		if (end <= sweep->pos) {
			heap_pop(sweep);
			continue;
		}
		emit(sweep, top);
		sweep->pos = end < until ? end : until;
	}
	if (sweep->pos < until)
		emit(sweep, COVER_NONE);
	sweep->pos = until;
}

int cover_build(const struct cover_range *ranges, size_t count,
		bool (*better)(const void *arg, uint32_t a, uint32_t b), const void *arg,
		struct cover **ret)
{
	struct cover *cover CLEANUP(cover) = calloc(1, sizeof(*cover));
	_cleanup_free_ uint32_t *heap = calloc(count + 1, sizeof(*heap));
	struct sweep sweep = {ranges, better, arg, heap, 0, cover, 0};
	struct piece *pieces;

	if (!cover || !heap)
		return -ENOMEM;
	cover->pieces = calloc(2 * count + 1, sizeof(*cover->pieces));
	if (!cover->pieces)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (ranges[i].end <= ranges[i].start)
			continue;
		advance(&sweep, ranges[i].start);
		heap_push(&sweep, i);
	}
	advance(&sweep, UINT64_MAX);
	pieces = reallocarray(cover->pieces, cover->count + 1, sizeof(*pieces));
	if (pieces)
		cover->pieces = pieces;
	*ret = take_ptr(cover);
	return 0;
}

void cover_free(struct cover *cover)
{
	if (!cover)
		return;
	free(cover->pieces);
	free(cover);
}

uint32_t cover_find(const struct cover *cover, uint64_t address)
{
	size_t low = 0, high = cover->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (cover->pieces[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? cover->pieces[low - 1].index : COVER_NONE;
}

size_t cover_bytes(const struct cover *cover)
{
	return sizeof(*cover) + cover->count * sizeof(*cover->pieces);
}
