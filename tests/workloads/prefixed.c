/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two allocators in one program: libc's malloc, and one whose functions have a prefix
 * (-DPREFIX=je_) and come from a library. Blocks of both live at once.
 */
#include "truth.h"

#define TIMES 10

#ifndef PREFIX
#define PREFIX
#endif
#define JOIN(a, b)  a##b
#define NAMED(a, b) JOIN(a, b)
#define API(fn)	    NAMED(PREFIX, fn)

void *API(malloc)(size_t size);
void *API(calloc)(size_t count, size_t size);
void *API(realloc)(void *ptr, size_t size);
void *API(memalign)(size_t align, size_t size);
int API(posix_memalign)(void **out, size_t align, size_t size);
void API(free)(void *ptr);

#define SIMPLE(fn, call)                                                                           \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		void *ptr = opaque(call);                                                          \
                                                                                                   \
		require(ptr);                                                                      \
		return block_new(&fn##_site, ptr, size);                                           \
	}

SIMPLE(libc_malloc, malloc(size))
SIMPLE(libc_calloc, calloc(1, size))
SIMPLE(libc_realloc_null, realloc(opaque(NULL), size))
SIMPLE(own_malloc, API(malloc)(size))
SIMPLE(own_calloc, API(calloc)(2, size / 2))
SIMPLE(own_realloc_null, API(realloc)(opaque(NULL), size))
SIMPLE(own_memalign, API(memalign)(64, size))

SITE(own_posix_memalign);
SITE_FN static struct block own_posix_memalign(size_t size)
{
	void *ptr = NULL;

	require(API(posix_memalign)(&ptr, 128, size) == 0);
	return block_new(&own_posix_memalign_site, opaque(ptr), size);
}

SITE(own_realloc);
SITE_FN static struct block own_realloc(size_t size)
{
	struct block old = own_malloc(size);
	void *ptr = opaque(API(realloc)(old.ptr, 7 * size));

	require(ptr);
	return block_moved(&old, &own_realloc_site, ptr, 7 * size);
}

SITE(libc_realloc);
SITE_FN static struct block libc_realloc(size_t size)
{
	struct block old = libc_malloc(size);
	void *ptr = opaque(realloc(old.ptr, 7 * size));

	require(ptr);
	return block_moved(&old, &libc_realloc_site, ptr, 7 * size);
}

/* libc's blocks, whoever asks for them. */
SITE_BELOW(libc_strdup);
SITE_FN static struct block libc_strdup(size_t size)
{
	static char text[32000];

	memset(text, 'x', size - 1);
	text[size - 1] = '\0';
	return block_new(&libc_strdup_site, opaque(strdup(text)), size);
}

#ifdef JEMALLOC_API
void *API(mallocx)(size_t size, int flags);
void *API(rallocx)(void *ptr, size_t size, int flags);
void API(dallocx)(void *ptr, int flags);
void API(sdallocx)(void *ptr, size_t size, int flags);

/* Aligned to 1 << 8, zeroed. */
#define FLAGS (8 | 64)

SIMPLE(own_mallocx, API(mallocx)(size, FLAGS))

SITE(own_rallocx);
SITE_FN static struct block own_rallocx(size_t size)
{
	struct block old = own_malloc(size);
	void *ptr = opaque(API(rallocx)(old.ptr, 7 * size, FLAGS));

	require(ptr);
	return block_moved(&old, &own_rallocx_site, ptr, 7 * size);
}

SITE(own_dallocx);
SITE_FN static struct block own_dallocx(size_t size)
{
	struct block block = block_new(&own_dallocx_site, opaque(API(malloc)(size)), size);

	API(dallocx)(block_take(&block), 0);
	return block;
}

SITE(own_sdallocx);
SITE_FN static struct block own_sdallocx(size_t size)
{
	struct block block = block_new(&own_sdallocx_site, opaque(API(mallocx)(size, FLAGS)), size);

	API(sdallocx)(block_take(&block), size, FLAGS);
	return block;
}
#endif

static struct block (*const libc_calls[])(size_t) = {
	libc_malloc, libc_calloc, libc_realloc_null, libc_realloc, libc_strdup,
};

static struct block (*const own_calls[])(size_t) = {
	own_malloc,  own_calloc,  own_realloc_null, own_memalign, own_posix_memalign, own_realloc,
#ifdef JEMALLOC_API
	own_mallocx, own_rallocx, own_dallocx,	    own_sdallocx,
#endif
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	for (size_t n = 1; n <= TIMES; n++) {
		struct block libc_blocks[COUNT(libc_calls)], own_blocks[COUNT(own_calls)];

		for (size_t i = 0; i < COUNT(libc_calls); i++)
			libc_blocks[i] = libc_calls[i](32 * (n + i * TIMES));
		for (size_t i = 0; i < COUNT(own_calls); i++)
			own_blocks[i] = own_calls[i](34 * (n + i * TIMES));
		if (n % 2)
			continue;
		for (size_t i = 0; i < COUNT(libc_calls); i++)
			block_free(&libc_blocks[i]);
		for (size_t i = 0; i < COUNT(own_calls); i++)
			API(free)(opaque(block_take(&own_blocks[i])));
	}
	return truth_finish();
}
