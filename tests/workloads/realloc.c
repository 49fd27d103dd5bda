/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every way through glibc's realloc: in place, moving, by mremap, failing, from another thread,
 * and the two where it falls back on its own malloc. Other allocators get the same calls, except
 * for those that need glibc to be steered, and may answer differently.
 */
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include "truth.h"

#define TIMES 10
#define KIB   1024ul
#define MIB   (1024 * KIB)

SITE(first_malloc);
SITE_FN static struct block first_malloc(size_t size)
{
	struct block block = block_new(&first_malloc_site, opaque(malloc(size)), size);

	require(block.ptr);
	return block;
}

/* A function that reallocs and owns what comes out of it. */
#define RESIZE(fn)                                                                                 \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(struct block old, size_t size)                              \
	{                                                                                          \
		void *ptr = opaque(realloc(opaque(old.ptr), opaque_size(size)));                   \
                                                                                                   \
		if (!ptr && size)                                                                  \
			return old;                                                                \
		return block_moved(&old, &fn##_site, ptr, size);                                   \
	}

RESIZE(realloc_from_null)
RESIZE(realloc_to_zero)
RESIZE(realloc_same_size)
RESIZE(realloc_shrink)
RESIZE(realloc_grow_in_place)
RESIZE(realloc_move)
RESIZE(realloc_too_big)
RESIZE(realloc_mapped_grow)
RESIZE(realloc_mapped_shrink)
RESIZE(realloc_mapped_to_heap)
RESIZE(realloc_other_thread)
RESIZE(realloc_no_memory)
RESIZE(realloc_chain)

/* Leaves this much address space and no more. */
static void limit_memory(struct rlimit *before)
{
	struct rlimit limit;
	char text[128] = "";
	FILE *file;
	static char buffer[BUFSIZ];

	require(getrlimit(RLIMIT_AS, before) == 0);
	file = fopen("/proc/self/statm", "r");
	require(file);
	setvbuf(file, buffer, _IOFBF, sizeof(buffer));
	require(fgets(text, sizeof(text), file));
	fclose(file);
	limit = *before;
	limit.rlim_cur = strtoul(text, NULL, 10) * sysconf(_SC_PAGESIZE) + 64 * KIB;
	require(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void *in_other_thread(void *arg)
{
	struct block *block = arg;

	*block = realloc_other_thread(*block, block->size * 3);
	return NULL;
}

static void run_simple(void)
{
	for (size_t i = 1; i <= TIMES; i++) {
		struct block block = realloc_from_null((struct block){0}, i * 48);
		struct block next, wall;
		void *before;

		block = realloc_same_size(block, block.size);
		block = realloc_shrink(block, block.size / 2);
		block = realloc_to_zero(block, 0);
		require(!block.ptr || !is_glibc_malloc());
		block_free(&block);

		/* What follows the block is free, up to the wall. */
		block = first_malloc(100 * KIB + i);
		next = first_malloc(20 * KIB);
		wall = first_malloc(64);
		block_free(&next);
		before = block.ptr;
		block = realloc_grow_in_place(block, 110 * KIB + i);
		require(block.ptr == before || !is_glibc_malloc());
		block = realloc_move(block, 125 * KIB + i);
		require(block.ptr != before || !is_glibc_malloc());
		block = realloc_too_big(block, PTRDIFF_MAX);
		block = realloc_too_big(block, SIZE_MAX);
		require(block.site == &realloc_move_site);
		block_free(&wall);
		if (i % 2)
			block_free(&block);
	}
}

static void run_mapped(void)
{
	for (size_t i = 1; i <= TIMES; i++) {
		struct block block = first_malloc(MIB + i);

		block = realloc_mapped_grow(block, 2 * MIB + i);
		block = realloc_mapped_shrink(block, MIB + MIB / 2);
		if (i % 2)
			block = realloc_mapped_to_heap(block, 1000 + i);
		if (i % 4 == 0)
			block_free(&block);
	}
}

static void run_threads(void)
{
	for (size_t i = 1; i <= TIMES; i++) {
		struct block block = first_malloc(500 * i);
		pthread_t thread;

		require(pthread_create(&thread, NULL, in_other_thread, &block) == 0);
		require(pthread_join(thread, NULL) == 0);
		block_free(&block);
	}
}

static void run_no_memory(void)
{
	struct block block = first_malloc(64 * MIB);
	struct rlimit before;

	limit_memory(&before);
	for (size_t i = 1; i <= TIMES; i++)
		block = realloc_no_memory(block, 128 * MIB + i);
	require(block.site == &first_malloc_site || !is_glibc_malloc());
	require(setrlimit(RLIMIT_AS, &before) == 0);
	block_free(&block);
}

#ifdef __GLIBC__
RESIZE(realloc_mremap_refused)
RESIZE(realloc_other_arena)

/* mremap fails but the heap has room: realloc calls malloc. */
static void run_mremap_refused(void)
{
	struct block mapped, room, wall;
	struct rlimit before;

	mallopt(M_MMAP_THRESHOLD, 128 * KIB);
	mapped = first_malloc(MIB);
	mallopt(M_MMAP_THRESHOLD, 32 * MIB);
	room = first_malloc(8 * MIB);
	wall = first_malloc(64);
	block_free(&room);
	limit_memory(&before);
	mapped = realloc_mremap_refused(mapped, 4 * MIB);
	require(mapped.site == &realloc_mremap_refused_site);
	require(setrlimit(RLIMIT_AS, &before) == 0);
	block_free(&wall);
}

static pthread_barrier_t heap_is_full;

/* The block is in this thread's arena, which cannot hold the new size; main's arena can. */
static void *in_other_arena(void *arg)
{
	struct block *block = arg;

	*block = first_malloc(4 * KIB);
	pthread_barrier_wait(&heap_is_full);
	pthread_barrier_wait(&heap_is_full);
	*block = realloc_other_arena(*block, 96 * MIB);
	require(block->site == &realloc_other_arena_site);
	return NULL;
}

/* realloc's last resort: malloc in another arena. */
static void run_other_arena(void)
{
	struct block block, room, wall;
	struct rlimit before;
	pthread_t thread;

	mallopt(M_MMAP_MAX, 0);
	pthread_barrier_init(&heap_is_full, NULL, 2);
	require(pthread_create(&thread, NULL, in_other_arena, &block) == 0);
	pthread_barrier_wait(&heap_is_full);
	room = first_malloc(100 * MIB);
	wall = first_malloc(64);
	block_free(&room);
	limit_memory(&before);
	pthread_barrier_wait(&heap_is_full);
	require(pthread_join(thread, NULL) == 0);
	require(setrlimit(RLIMIT_AS, &before) == 0);
	mallopt(M_MMAP_MAX, 65536);
	block_free(&wall);
}

#endif

static void run_chain(void)
{
	struct block block = {0};

	for (size_t i = 1; i <= 1000; i++)
		block = realloc_chain(block, 37 * i);
}

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
#ifdef __GLIBC__
	/* A fixed threshold: it would grow by itself with the first free of a mapped block. */
	mallopt(M_MMAP_THRESHOLD, 128 * KIB);
	mallopt(M_TRIM_THRESHOLD, 512 * MIB);
#endif
	run_simple();
	run_mapped();
	run_threads();
	run_chain();
#ifdef __GLIBC__
	if (is_glibc_malloc()) {
		run_mremap_refused();
		run_other_arena();
	}
#endif
	/* Last: a failed malloc moves the thread to another arena. */
	run_no_memory();
	return truth_finish();
}
