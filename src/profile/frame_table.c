/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include "profile/frame_table.h"

#include "heaptap/stack.h"

void frame_table_fini(struct frame_table *table)
{
	HASH_CLEAR(hh, table->frames);
	arena_fini(&table->arena);
}

struct known_frame *frame_table_get(struct frame_table *table, uint64_t frame, uint32_t serial)
{
	const struct known_frame wanted = {.key = {frame, frame & FRAME_RAW ? serial : 0}};
	struct known_frame *known;

	HASH_FIND(hh, table->frames, &wanted.key, sizeof(wanted.key), known);
	if (known)
		return known;
	known = arena_alloc(&table->arena, sizeof(*known));
	if (!known)
		return NULL;
	*known = wanted;
	HASH_ADD(hh, table->frames, key, sizeof(known->key), known);
	return known->hh.tbl ? known : NULL;
}

static int by_frame(const struct known_frame *a, const struct known_frame *b)
{
	return (a->key.frame > b->key.frame) - (a->key.frame < b->key.frame);
}

void frame_table_sort(struct frame_table *table)
{
	HASH_SORT(table->frames, by_frame);
}
