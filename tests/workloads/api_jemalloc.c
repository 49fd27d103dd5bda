/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* jemalloc's own functions, ten times each, with the flags that change what they do. */
#include <jemalloc/jemalloc.h>

#include "truth.h"

#define TIMES 10

#define SIMPLE(fn, call)                                                                           \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		void *ptr = opaque(call);                                                          \
                                                                                                   \
		require(ptr);                                                                      \
		return block_new(&fn##_site, ptr, size);                                           \
	}

/* Another function resizes what mallocx gave. */
#define RESIZE(fn, call)                                                                           \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		struct block old = x_mallocx(size);                                                \
		size_t new_size = 7 * size;                                                        \
		void *ptr = opaque(call);                                                          \
                                                                                                   \
		require(ptr);                                                                      \
		return block_moved(&old, &fn##_site, ptr, new_size);                               \
	}

SIMPLE(x_mallocx, mallocx(size, 0))
SIMPLE(x_mallocx_zero, mallocx(size, MALLOCX_ZERO))
SIMPLE(x_mallocx_64, mallocx(size, MALLOCX_ALIGN(64)))
SIMPLE(x_mallocx_4096_zero, mallocx(size, MALLOCX_LG_ALIGN(12) | MALLOCX_ZERO))
SIMPLE(x_mallocx_uncached, mallocx(size, MALLOCX_TCACHE_NONE))
RESIZE(x_rallocx, rallocx(old.ptr, new_size, 0))
RESIZE(x_rallocx_zero, rallocx(old.ptr, new_size, MALLOCX_ZERO))
RESIZE(x_rallocx_64, rallocx(old.ptr, new_size, MALLOCX_ALIGN(64)))
RESIZE(x_realloc, realloc(old.ptr, new_size))

/* The old block stays. */
SITE_BELOW(x_rallocx_fails);
SITE_FN static struct block x_rallocx_fails(size_t size)
{
	struct block old = x_mallocx(size);

	require(!opaque(rallocx(old.ptr, opaque_size(PTRDIFF_MAX), 0)));
	return old;
}

SITE_BELOW(x_mallocx_fails);
SITE_FN static struct block x_mallocx_fails(size_t size)
{
	return block_new(&x_mallocx_fails_site,
			 opaque(mallocx(opaque_size(PTRDIFF_MAX), MALLOCX_ALIGN(64))), size);
}

/* Resizes in place or not at all, and says what there is now. */
SITE_BELOW(x_xallocx);
SITE_FN static struct block x_xallocx(size_t size)
{
	struct block old = x_mallocx(size);
	size_t new_size = nallocx(size, 0);

	require(xallocx(old.ptr, new_size, 0, 0) == new_size);
	return block_resized(&old, &x_xallocx_site, new_size);
}

SITE_BELOW(x_xallocx_fails);
SITE_FN static struct block x_xallocx_fails(size_t size)
{
	struct block old = x_mallocx(size);

	require(xallocx(old.ptr, 100 * size, 0, 0) < 100 * size);
	return old;
}

#define FREES(fn, call)                                                                            \
	SITE_BELOW(fn);                                                                            \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		struct block block = block_new(&fn##_site, opaque(mallocx(size, 0)), size);        \
		void *ptr = block_take(&block);                                                    \
                                                                                                   \
		call;                                                                              \
		return block;                                                                      \
	}

FREES(x_dallocx, dallocx(ptr, 0))
FREES(x_dallocx_uncached, dallocx(ptr, MALLOCX_TCACHE_NONE))
FREES(x_sdallocx, sdallocx(ptr, size, 0))
FREES(x_sdallocx_align, sdallocx(ptr, size, MALLOCX_ALIGN(8)))

static struct block (*const calls[])(size_t) = {
	x_mallocx,	 x_mallocx_zero,   x_mallocx_64,    x_mallocx_4096_zero, x_mallocx_uncached,
	x_rallocx,	 x_rallocx_zero,   x_rallocx_64,    x_realloc,		 x_rallocx_fails,
	x_mallocx_fails, x_xallocx,	   x_xallocx_fails, x_dallocx,		 x_dallocx_uncached,
	x_sdallocx,	 x_sdallocx_align,
};

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct block blocks[TIMES];

		for (size_t n = 0; n < TIMES; n++)
			blocks[n] = calls[i](32 + 40 * (n + i * TIMES));
		for (size_t n = 0; n < TIMES; n += 2) {
			if (blocks[n].ptr)
				dallocx(block_take(&blocks[n]), 0);
		}
	}
	return truth_finish();
}
