/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The functions that a preloaded library passes on, and some of libc's that call them. What the
 * program asked for is what counts, also where the library gives blocks a header.
 */
#include "truth.h"

#define TIMES 10

SITE(forward_malloc);
SITE_FN static struct block forward_malloc(size_t size)
{
	return block_new(&forward_malloc_site, opaque(malloc(size)), size);
}

SITE(forward_calloc);
SITE_FN static struct block forward_calloc(size_t size)
{
	return block_new(&forward_calloc_site, opaque(calloc(size, 3)), 3 * size);
}

SITE(forward_realloc_null);
SITE_FN static struct block forward_realloc_null(size_t size)
{
	return block_new(&forward_realloc_null_site, opaque(realloc(opaque(NULL), size)), size);
}

SITE(forward_realloc);
SITE_FN static struct block forward_realloc(size_t size)
{
	struct block old = forward_malloc(size);
	void *ptr = opaque(realloc(old.ptr, 5 * size));

	require(ptr);
	return block_moved(&old, &forward_realloc_site, ptr, 5 * size);
}

SITE(forward_posix_memalign);
SITE_FN static struct block forward_posix_memalign(size_t size)
{
	void *ptr = NULL;

	require(posix_memalign(&ptr, 64, size) == 0);
	return block_new(&forward_posix_memalign_site, opaque(ptr), size);
}

SITE(forward_fails);
SITE_FN static struct block forward_fails(size_t size)
{
	void *ptr = opaque(malloc(opaque_size(PTRDIFF_MAX - size)));

	require(!ptr);
	return block_new(&forward_fails_site, ptr, size);
}

/* By way of libc. */
SITE_BELOW(forward_strdup);
SITE_FN static struct block forward_strdup(size_t size)
{
	static char text[32000];

	memset(text, 'x', size - 1);
	text[size - 1] = '\0';
	return block_new(&forward_strdup_site, opaque(strdup(text)), size);
}

static struct block (*const calls[])(size_t) = {
	forward_malloc,		forward_calloc, forward_realloc_null, forward_realloc,
	forward_posix_memalign, forward_fails,	forward_strdup,
};

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct block blocks[TIMES];

		for (size_t n = 0; n < TIMES; n++)
			blocks[n] = calls[i](24 + 40 * (n + i * TIMES));
		for (size_t n = 0; n < TIMES; n += 2)
			block_free(&blocks[n]);
	}
	return truth_finish();
}
