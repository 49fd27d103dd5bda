/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#define BLOCK_SIZE (64u << 10)

struct arena_block {
	struct arena_block *next;
	size_t used;
	size_t size;
	alignas(max_align_t) char bytes[];
};

void arena_fini(struct arena *arena)
{
	while (arena->blocks) {
		struct arena_block *block = arena->blocks;

		arena->blocks = block->next;
		free(block);
	}
}

static struct arena_block *block_new(size_t size)
{
	struct arena_block *block =
		size <= SIZE_MAX - sizeof(*block) ? malloc(sizeof(*block) + size) : NULL;

	if (!block)
		return NULL;
	block->used = 0;
	block->size = size;
	return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	struct arena_block *block = arena->blocks;
	void *ptr;

	if (size > SIZE_MAX - alignof(max_align_t))
		return NULL;
	size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	if (!block || block->size - block->used < size) {
		struct arena_block *added = block_new(size < BLOCK_SIZE ? BLOCK_SIZE : size);

		if (!added)
			return NULL;
		/* What is large has a block of its own, behind the one in use. */
		if (block && size >= BLOCK_SIZE) {
			added->next = block->next;
			block->next = added;
		} else {
			added->next = block;
			arena->blocks = added;
		}
		block = added;
	}
	ptr = block->bytes + block->used;
	block->used += size;
	return ptr;
}
