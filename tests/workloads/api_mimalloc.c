/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mimalloc's own functions, ten times each. Not mi_strdup() and its like, whose size no argument
 * tells, nor mi_heap_destroy(), which frees without a call for each block.
 */
#include <errno.h>
#include <mimalloc.h>

#include "truth.h"

#define TIMES 10
#define HUGE  opaque_size((size_t)PTRDIFF_MAX + 1)

static mi_heap_t *heap;

#define SIMPLE(fn, call)                                                                           \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		void *ptr = opaque(call);                                                          \
                                                                                                   \
		require(ptr);                                                                      \
		return block_new(&fn##_site, ptr, size);                                           \
	}

#define RESIZE(fn, call)                                                                           \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		struct block old = api_malloc(size);                                               \
		size_t new_size = 7 * size;                                                        \
		void *ptr = opaque(call);                                                          \
                                                                                                   \
		require(ptr);                                                                      \
		return block_moved(&old, &fn##_site, ptr, new_size);                               \
	}

SIMPLE(api_malloc, mi_malloc(size))
SIMPLE(api_calloc, mi_calloc(size / 8, 8))
SIMPLE(api_zalloc, mi_zalloc(size))
SIMPLE(api_mallocn, mi_mallocn(size / 8, 8))
SIMPLE(api_malloc_aligned, mi_malloc_aligned(size, 64))
SIMPLE(api_malloc_aligned_4096, mi_malloc_aligned(size, 4096))
SIMPLE(api_malloc_aligned_at, mi_malloc_aligned_at(size, 64, 8))
SIMPLE(api_zalloc_aligned, mi_zalloc_aligned(size, 64))
SIMPLE(api_zalloc_aligned_at, mi_zalloc_aligned_at(size, 64, 8))
SIMPLE(api_calloc_aligned, mi_calloc_aligned(size / 8, 8, 64))
SIMPLE(api_calloc_aligned_at, mi_calloc_aligned_at(size / 8, 8, 64, 8))
SIMPLE(api_realloc_null, mi_realloc(opaque(NULL), size))
SIMPLE(api_memalign, mi_memalign(64, size))
SIMPLE(api_aligned_alloc, mi_aligned_alloc(8, size))
SIMPLE(api_valloc, mi_valloc(size))
SIMPLE(api_reallocarray_null, mi_reallocarray(opaque(NULL), size / 8, 8))
SIMPLE(api_new, mi_new(size))
SIMPLE(api_new_aligned, mi_new_aligned(size, 64))
SIMPLE(api_new_nothrow, mi_new_nothrow(size))
SIMPLE(api_new_aligned_nothrow, mi_new_aligned_nothrow(size, 64))
SIMPLE(api_new_n, mi_new_n(size / 8, 8))
SIMPLE(heap_malloc, mi_heap_malloc(heap, size))
SIMPLE(heap_zalloc, mi_heap_zalloc(heap, size))
SIMPLE(heap_calloc, mi_heap_calloc(heap, size / 8, 8))
SIMPLE(heap_mallocn, mi_heap_mallocn(heap, size / 8, 8))
SIMPLE(heap_malloc_aligned, mi_heap_malloc_aligned(heap, size, 64))
SIMPLE(heap_malloc_aligned_at, mi_heap_malloc_aligned_at(heap, size, 64, 8))
SIMPLE(heap_zalloc_aligned, mi_heap_zalloc_aligned(heap, size, 64))
SIMPLE(heap_calloc_aligned, mi_heap_calloc_aligned(heap, size / 8, 8, 64))
SIMPLE(heap_alloc_new, mi_heap_alloc_new(heap, size))
SIMPLE(heap_alloc_new_n, mi_heap_alloc_new_n(heap, size / 8, 8))
SIMPLE(heap_realloc_null, mi_heap_realloc(heap, opaque(NULL), size))

RESIZE(api_realloc, mi_realloc(old.ptr, new_size))
RESIZE(api_reallocn, mi_reallocn(old.ptr, size, 7))
RESIZE(api_reallocarray, mi_reallocarray(old.ptr, size, 7))
RESIZE(api_reallocf, mi_reallocf(old.ptr, new_size))
RESIZE(api_rezalloc, mi_rezalloc(old.ptr, new_size))
RESIZE(api_recalloc, mi_recalloc(old.ptr, size, 7))
RESIZE(api_realloc_aligned, mi_realloc_aligned(old.ptr, new_size, 64))
RESIZE(api_realloc_aligned_at, mi_realloc_aligned_at(old.ptr, new_size, 64, 8))
RESIZE(api_rezalloc_aligned, mi_rezalloc_aligned(old.ptr, new_size, 64))
RESIZE(api_recalloc_aligned, mi_recalloc_aligned(old.ptr, size, 7, 64))
RESIZE(api_new_realloc, mi_new_realloc(old.ptr, new_size))
RESIZE(api_new_reallocn, mi_new_reallocn(old.ptr, size, 7))
RESIZE(heap_realloc, mi_heap_realloc(heap, old.ptr, new_size))
RESIZE(heap_reallocn, mi_heap_reallocn(heap, old.ptr, size, 7))
RESIZE(heap_reallocf, mi_heap_reallocf(heap, old.ptr, new_size))
RESIZE(heap_rezalloc, mi_heap_rezalloc(heap, old.ptr, new_size))
RESIZE(heap_recalloc, mi_heap_recalloc(heap, old.ptr, size, 7))
RESIZE(heap_realloc_aligned, mi_heap_realloc_aligned(heap, old.ptr, new_size, 64))

/* Up to 1024 bytes. */
SIMPLE(api_malloc_small, mi_malloc_small(size %= 1000))
SIMPLE(api_zalloc_small, mi_zalloc_small(size %= 1000))
SIMPLE(heap_malloc_small, mi_heap_malloc_small(heap, size %= 1000))

SITE_BELOW(api_posix_memalign);
SITE_FN static struct block api_posix_memalign(size_t size)
{
	void *ptr = NULL;

	require(mi_posix_memalign(&ptr, 256, size) == 0);
	return block_new(&api_posix_memalign_site, opaque(ptr), size);
}

/* Like pvalloc elsewhere, it may pass on a size that is rounded up: whole pages are asked for. */
SITE_BELOW(api_pvalloc);
SITE_FN static struct block api_pvalloc(size_t size)
{
	size = (size + 4095) / 4096 * 4096;
	return block_new(&api_pvalloc_site, opaque(mi_pvalloc(size)), size);
}

/* Resizes in place or not at all. */
SITE_BELOW(api_expand);
SITE_FN static struct block api_expand(size_t size)
{
	struct block old = api_malloc(size);
	size_t usable = mi_usable_size(old.ptr);

	require(mi_expand(old.ptr, usable) == old.ptr);
	require(!mi_expand(old.ptr, 10 * size));
	return block_resized(&old, &api_expand_site, usable);
}

/* Frees the old block if it fails. */
SITE_BELOW(api_reallocf_fails);
SITE_FN static struct block api_reallocf_fails(size_t size)
{
	struct block old = api_malloc(size);

	require(!opaque(mi_reallocf(old.ptr, HUGE)));
	block_take(&old);
	return old;
}

SITE_BELOW(api_fails);
SITE_FN static struct block api_fails(size_t size)
{
	struct block old = api_malloc(size);
	void *out = opaque((void *)0xdeadbeef0);

	require(!opaque(mi_malloc(HUGE)));
	require(!opaque(mi_calloc(HUGE, opaque_size(16ul))));
	require(!opaque(mi_mallocn(HUGE, opaque_size(16ul))));
	require(!opaque(mi_new_nothrow(HUGE)));
	require(!opaque(mi_heap_malloc(heap, HUGE)));
	require(!opaque(mi_realloc(old.ptr, HUGE)));
	require(!opaque(mi_rezalloc(old.ptr, HUGE)));
	require(!opaque(mi_reallocn(old.ptr, HUGE, opaque_size(16ul))));
	require(mi_posix_memalign(&out, opaque_size(3ul), size) == EINVAL);
	require(!opaque(mi_malloc_aligned(HUGE, 64)));
	return old;
}

#define FREES(fn, call)                                                                            \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		struct block block =                                                               \
			block_new(&fn##_site, opaque(mi_malloc_aligned(size, 64)), size);          \
		void *ptr = block_take(&block);                                                    \
                                                                                                   \
		call;                                                                              \
		return block;                                                                      \
	}

FREES(frees_free, mi_free(ptr))
FREES(frees_size, mi_free_size(ptr, size))
FREES(frees_aligned, mi_free_aligned(ptr, 64))
FREES(frees_size_aligned, mi_free_size_aligned(ptr, size, 64))
FREES(frees_cfree, mi_cfree(ptr))

static struct block (*const calls[])(size_t) = {
	api_malloc,
	api_calloc,
	api_zalloc,
	api_mallocn,
	api_malloc_aligned,
	api_malloc_aligned_4096,
	api_malloc_aligned_at,
	api_zalloc_aligned,
	api_zalloc_aligned_at,
	api_calloc_aligned,
	api_calloc_aligned_at,
	api_realloc_null,
	api_memalign,
	api_aligned_alloc,
	api_valloc,
	api_reallocarray_null,
	api_new,
	api_new_aligned,
	api_new_nothrow,
	api_new_aligned_nothrow,
	api_new_n,
	heap_malloc,
	heap_zalloc,
	heap_calloc,
	heap_mallocn,
	heap_malloc_aligned,
	heap_malloc_aligned_at,
	heap_zalloc_aligned,
	heap_calloc_aligned,
	heap_alloc_new,
	heap_alloc_new_n,
	heap_realloc_null,
	api_realloc,
	api_reallocn,
	api_reallocarray,
	api_reallocf,
	api_rezalloc,
	api_recalloc,
	api_realloc_aligned,
	api_realloc_aligned_at,
	api_rezalloc_aligned,
	api_recalloc_aligned,
	api_new_realloc,
	api_new_reallocn,
	heap_realloc,
	heap_reallocn,
	heap_reallocf,
	heap_rezalloc,
	heap_recalloc,
	heap_realloc_aligned,
	api_malloc_small,
	api_zalloc_small,
	heap_malloc_small,
	api_posix_memalign,
	api_pvalloc,
	api_expand,
	api_reallocf_fails,
	api_fails,
	frees_free,
	frees_size,
	frees_aligned,
	frees_size_aligned,
	frees_cfree,
};

static void run_calls(void)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct block blocks[TIMES];

		for (size_t n = 0; n < TIMES; n++)
			blocks[n] = calls[i](32 + 8 * (n + i * TIMES));
		for (size_t n = 0; n < TIMES; n += 2)
			mi_free(opaque(block_take(&blocks[n])));
	}
}

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	heap = mi_heap_new();
	run_calls();
	/* Its blocks live on in the thread's default heap. */
	mi_heap_delete(heap);
	return truth_finish();
}
