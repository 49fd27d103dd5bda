/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls that must fail, ten times each, and successful ones of the same functions in between. */
#include <errno.h>
#include <malloc.h>

#include "truth.h"

#define TIMES 10

#define FAILS(fn, call)                                                                            \
	SITE(fn);                                                                                  \
	SITE_FN static void fn(void)                                                               \
	{                                                                                          \
		void *ptr = opaque(call);                                                          \
                                                                                                   \
		require(!block_new(&fn##_site, ptr, 0).ptr);                                       \
	}

#define POSIX_FAILS(fn, error, align, size)                                                        \
	SITE(fn);                                                                                  \
	SITE_FN static void fn(void)                                                               \
	{                                                                                          \
		/* Left as it is by a call that fails: to be read by nobody. */                    \
		void *out = opaque((void *)0xdeadbeef0);                                           \
                                                                                                   \
		require(posix_memalign(&out, opaque_size((size_t)(align)),                         \
				       opaque_size((size_t)(size))) == (error));                   \
		require(out == (void *)0xdeadbeef0);                                               \
	}

#define BIG  opaque_size((size_t)PTRDIFF_MAX - 4096)
#define HUGE opaque_size(SIZE_MAX)

FAILS(fail_malloc, malloc(HUGE))
FAILS(fail_malloc_big, malloc(BIG))
FAILS(fail_malloc_ptrdiff, malloc(opaque_size((size_t)PTRDIFF_MAX + 1)))
FAILS(fail_calloc_overflow, calloc(opaque_size(SIZE_MAX / 2), opaque_size(3ul)))
FAILS(fail_calloc, calloc(1, BIG))
FAILS(fail_realloc_null, realloc(opaque(NULL), HUGE))
FAILS(fail_reallocarray_overflow,
      reallocarray(opaque(NULL), opaque_size(SIZE_MAX / 2), opaque_size(3ul)))
FAILS(fail_memalign_16, memalign(opaque_size(16ul), BIG))
FAILS(fail_memalign_64, memalign(opaque_size(64ul), HUGE))
FAILS(fail_aligned_alloc_16, aligned_alloc(opaque_size(16ul), BIG))
FAILS(fail_aligned_alloc_64, aligned_alloc(opaque_size(64ul), BIG))
FAILS(fail_aligned_alloc_4096, aligned_alloc(opaque_size(4096ul), BIG))
FAILS(fail_valloc, valloc(HUGE))
#ifdef __GLIBC__
FAILS(fail_pvalloc_big, pvalloc(BIG))
FAILS(fail_pvalloc, pvalloc(HUGE))
#endif
POSIX_FAILS(fail_posix_memalign_3, EINVAL, 3, 100)
POSIX_FAILS(fail_posix_memalign_4, EINVAL, 4, 100)
POSIX_FAILS(fail_posix_memalign_0, EINVAL, 0, 100)
POSIX_FAILS(fail_posix_memalign_8, ENOMEM, 8, BIG)
POSIX_FAILS(fail_posix_memalign_64, ENOMEM, 64, BIG)

SITE(kept_malloc);
SITE_FN static struct block kept_malloc(size_t size)
{
	return block_new(&kept_malloc_site, opaque(malloc(size)), size);
}

/* A realloc that fails leaves its block alone. */
SITE(fail_realloc);
SITE_FN static void fail_realloc(struct block *block)
{
	require(!opaque(realloc(opaque(block->ptr), BIG)));
	require(!opaque(realloc(opaque(block->ptr), HUGE)));
	require(!opaque(
		reallocarray(opaque(block->ptr), opaque_size(SIZE_MAX / 2), opaque_size(3ul))));
	/* 2^64, which is 0 to a multiplication. */
	require(!opaque(
		reallocarray(opaque(block->ptr), opaque_size(1ul << 33), opaque_size(1ul << 31))));
}

SITE(good_posix_memalign);
SITE_FN static struct block good_posix_memalign(size_t size)
{
	void *ptr;

	require(posix_memalign(&ptr, 64, size) == 0);
	return block_new(&good_posix_memalign_site, opaque(ptr), size);
}

static void (*const failures[])(void) = {
	fail_malloc,
	fail_malloc_big,
	fail_malloc_ptrdiff,
	fail_calloc_overflow,
	fail_calloc,
	fail_realloc_null,
	fail_reallocarray_overflow,
	fail_memalign_16,
	fail_memalign_64,
	fail_aligned_alloc_16,
	fail_aligned_alloc_64,
	fail_aligned_alloc_4096,
	fail_valloc,
#ifdef __GLIBC__
	fail_pvalloc_big,
#endif
	fail_posix_memalign_3,
	fail_posix_memalign_4,
	fail_posix_memalign_0,
	fail_posix_memalign_8,
	fail_posix_memalign_64,
};

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	for (size_t n = 1; n <= TIMES; n++) {
		struct block block = kept_malloc(100 * n);
		struct block aligned = good_posix_memalign(200 * n);

		for (size_t i = 0; i < sizeof(failures) / sizeof(*failures); i++)
			failures[i]();
#ifdef __GLIBC__
		/* Others round it up to 0. */
		if (is_glibc_malloc())
			fail_pvalloc();
#endif
		fail_realloc(&block);
		fail_realloc(&aligned);
		if (n % 2)
			block_free(&block);
		if (n % 3 == 0)
			block_free(&aligned);
	}
	return truth_finish();
}
