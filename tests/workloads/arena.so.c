/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A library with an allocator of its own, which never calls another's. For one thread. */
#include <stddef.h>
#include <string.h>

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t size);
void free(void *block);

#define ARENA_SIZE (64ul << 20)
#define CLASSES	   32

struct header {
	size_t size;
	struct header *next; /* while it is free */
};

static char arena[ARENA_SIZE] __attribute__((aligned(16)));
static size_t used;
static struct header *free_blocks[CLASSES];

static unsigned int class_of(size_t size)
{
	unsigned int class = 4;

	while (class < CLASSES - 1 && (size_t)1 << class < size)
		class ++;
	return class;
}

/* Not malloc() itself: an allocation of the library's own would be one that is nested. */
static void *take(size_t size)
{
	unsigned int class = class_of(size);
	struct header *header = free_blocks[class];

	if (size >= ARENA_SIZE)
		return NULL;
	if (header) {
		free_blocks[class] = header->next;
	} else {
		if (ARENA_SIZE - used < ((size_t)1 << class) + sizeof(*header))
			return NULL;
		header = (struct header *)&arena[used];
		used += ((size_t)1 << class) + sizeof(*header);
	}
	header->size = size;
	return header + 1;
}

static void give(void *block)
{
	struct header *header = (struct header *)block - 1;
	unsigned int class = class_of(header->size);

	header->next = free_blocks[class];
	free_blocks[class] = header;
}

void *malloc(size_t size)
{
	return take(size);
}

void *calloc(size_t count, size_t size)
{
	void *block = take(count * size);

	return block ? memset(block, 0, count * size) : NULL;
}

void *realloc(void *old, size_t size)
{
	void *block = take(size);

	if (old && block) {
		size_t old_size = ((struct header *)old - 1)->size;

		memcpy(block, old, old_size < size ? old_size : size);
		give(old);
	}
	return block;
}

void free(void *block)
{
	if (block)
		give(block);
}
