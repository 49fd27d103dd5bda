/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every allocation function ten times, each from a function of its own; half is freed again. Those
 * that the allocator at hand does not have are left out, and what differs between allocators is
 * believed: whether realloc(p, 0) gives a block, whether a function moves one.
 */
#include <dlfcn.h>
#include <malloc.h>

#include "truth.h"

#define TIMES 10

/* Not declared any more, but still exported for old programs. */
static void (*old_cfree)(void *);
/* Of C23, not declared yet. */
static void (*sized_free)(void *, size_t);
static void (*aligned_sized_free)(void *, size_t, size_t);

#define SIMPLE(fn, call)                                                                           \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		return block_new(&fn##_site, opaque(call), size);                                  \
	}

#define POSIX(fn, align)                                                                           \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		void *ptr = NULL;                                                                  \
                                                                                                   \
		require(posix_memalign(&ptr, align, size) == 0);                                   \
		return block_new(&fn##_site, opaque(ptr), size);                                   \
	}

SIMPLE(call_malloc, malloc(size))
SIMPLE(call_calloc, calloc(1, size))
SIMPLE(call_calloc_many, calloc(size, 1))
SIMPLE(call_realloc_null, realloc(opaque(NULL), size))
SIMPLE(call_reallocarray_null, reallocarray(opaque(NULL), 1, size))
SIMPLE(call_memalign_8, memalign(8, size))
SIMPLE(call_memalign_16, memalign(16, size))
SIMPLE(call_memalign_64, memalign(64, size))
SIMPLE(call_memalign_4096, memalign(4096, size))
SIMPLE(call_aligned_alloc_16, aligned_alloc(16, size))
SIMPLE(call_aligned_alloc_64, aligned_alloc(64, size))
POSIX(call_posix_memalign_8, 8)
POSIX(call_posix_memalign_16, 16)
POSIX(call_posix_memalign_64, 64)
/* glibc's and most others allow it, scudo does not. */
SITE(call_aligned_alloc_odd);
SITE_FN static struct block call_aligned_alloc_odd(size_t size)
{
	size -= 8;
	return block_new(&call_aligned_alloc_odd_site, opaque(aligned_alloc(64, size)), size);
}

SIMPLE(call_valloc, valloc(size))

#ifdef __GLIBC__
SITE(call_pvalloc);
SITE_FN static struct block call_pvalloc(size_t size)
{
	struct block none = {0};

	/* Others pass the size on as whole pages, which then is what was asked for. */
	if (!is_glibc_malloc())
		size = (size + 4095) / 4096 * 4096;
	if (!same_image((void *)pvalloc, (void *)malloc))
		return none;
	return block_new(&call_pvalloc_site, opaque(pvalloc(size)), size);
}
#endif

SITE(call_malloc_zero);
SITE_FN static struct block call_malloc_zero(size_t size)
{
	(void)size;
	return block_new(&call_malloc_zero_site, opaque(malloc(opaque_size(0ul))), 0);
}

SITE(call_reallocarray);
SITE_FN static struct block call_reallocarray(size_t size)
{
	struct block old = call_malloc(size);
	void *ptr = opaque(reallocarray(opaque(old.ptr), 3, size));

	require(ptr);
	return block_moved(&old, &call_reallocarray_site, ptr, 3 * size);
}

SITE(call_realloc_moving);
SITE_FN static struct block call_realloc_moving(size_t size)
{
	struct block old = call_malloc(size);
	struct block wall = call_malloc(size); /* no room to grow in place */
	void *ptr = opaque(realloc(opaque(old.ptr), 5 * size));

	require(ptr && (ptr != old.ptr || !is_glibc_malloc()));
	block_free(&wall);
	return block_moved(&old, &call_realloc_moving_site, ptr, 5 * size);
}

SITE(call_realloc_zero);
SITE_FN static struct block call_realloc_zero(size_t size)
{
	struct block old = call_malloc(size);
	void *ptr = opaque(realloc(opaque(old.ptr), opaque_size(0ul)));

	return block_moved(&old, &call_realloc_zero_site, ptr, 0);
}

SITE(call_strdup_like);
SITE_FN static struct block call_strdup_like(size_t size)
{
	char *copy = malloc(size);

	require(copy);
	memset(copy, 'x', size - 1);
	copy[size - 1] = '\0';
	return block_new(&call_strdup_like_site, opaque(copy), size);
}

SITE_FN static void call_free_null(void)
{
	free(opaque(NULL));
}

SITE(call_cfree);
SITE_FN static struct block call_cfree(size_t size)
{
	struct block block = block_new(&call_cfree_site, opaque(malloc(size)), size);

	if (old_cfree)
		old_cfree(block_take(&block));
	return block;
}

SITE(call_free_sized);
SITE_FN static struct block call_free_sized(size_t size)
{
	struct block block = block_new(&call_free_sized_site, opaque(malloc(size)), size);

	if (sized_free)
		sized_free(block_take(&block), size);
	return block;
}

SITE(call_free_aligned_sized);
SITE_FN static struct block call_free_aligned_sized(size_t size)
{
	struct block block =
		block_new(&call_free_aligned_sized_site, opaque(aligned_alloc(64, size)), size);

	if (aligned_sized_free)
		aligned_sized_free(block_take(&block), 64, size);
	return block;
}

/* NULL unless the allocator itself has it. */
static void *allocators_own(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);

#ifdef __GLIBC__
	if (!function)
		function = dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5");
#endif
	return function && same_image(function, (void *)free) ? function : NULL;
}

static struct block (*const calls[])(size_t) = {
	call_malloc,
	call_calloc,
	call_calloc_many,
	call_realloc_null,
	call_reallocarray_null,
	call_memalign_8,
	call_memalign_16,
	call_memalign_64,
	call_memalign_4096,
	call_aligned_alloc_16,
	call_aligned_alloc_64,
	call_aligned_alloc_odd,
	call_posix_memalign_8,
	call_posix_memalign_16,
	call_posix_memalign_64,
	call_valloc,
#ifdef __GLIBC__
	call_pvalloc,
#endif
	call_malloc_zero,
	call_reallocarray,
	call_realloc_moving,
	call_realloc_zero,
	call_strdup_like,
	call_cfree,
	call_free_sized,
	call_free_aligned_sized,
};

int main(int argc, char **argv)
{
	/* Before the start: dlsym may allocate. */
	*(void **)&old_cfree = allocators_own("cfree");
	*(void **)&sized_free = allocators_own("free_sized");
	*(void **)&aligned_sized_free = allocators_own("free_aligned_sized");
	truth_start(&argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct block blocks[TIMES];

		/* A multiple of 64 for aligned_alloc; each size is different. */
		for (size_t n = 0; n < TIMES; n++)
			blocks[n] = calls[i](64 * (1 + n + i * TIMES));
		for (size_t n = 0; n < TIMES; n += 2)
			block_free(&blocks[n]);
		call_free_null();
	}
	return truth_finish();
}
