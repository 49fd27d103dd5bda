/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two heaps by RTLD_DEEPBIND: `deepbind LIBRARY`, whose functions get libc's malloc while those of
 * the program get the preloaded one.
 */
#include "truth.h"

#define TIMES 10

static void *(*deep_malloc_fn)(size_t);
static void (*deep_free_fn)(void *);

/* The library's function. */
SITE(deep_malloc);

SITE(plain_malloc);
SITE_FN static struct block plain_malloc(size_t size)
{
	return block_new(&plain_malloc_site, opaque(malloc(size)), size);
}

static void load_library(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

	require(library);
	*(void **)&deep_malloc_fn = dlsym(library, "deep_malloc");
	*(void **)&deep_free_fn = dlsym(library, "deep_free");
	require(deep_malloc_fn && deep_free_fn);
}

int main(int argc, char **argv)
{
	require(argc > 1);
	/* Before the start: it allocates. */
	load_library(argv[argc - 1]);
	truth_start(&argc, argv);
	for (size_t n = 1; n <= TIMES; n++) {
		struct block plain = plain_malloc(100 * n);
		struct block deep =
			block_new(&deep_malloc_site, deep_malloc_fn(2000 * n), 2000 * n);

		if (n % 2)
			block_free(&plain);
		if (n % 3 == 0)
			deep_free_fn(block_take(&deep));
	}
	return truth_finish();
}
