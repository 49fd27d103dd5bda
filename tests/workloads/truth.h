/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a workload knows about its own heap, printed for a test to compare with a profile.
 *
 * A site is a function that calls the allocator directly; sizes are the requested ones. realloc
 * counts as a free of the old block and an allocation of the new one, a failed call as nothing.
 * Nothing here allocates. With `--wait` the program waits for a line on stdin before its first
 * allocation and before its end.
 */
#ifndef TRUTH_H
#define TRUTH_H

#ifdef __cplusplus
#include <atomic>
using std::atomic_fetch_add_explicit;
using std::atomic_ulong;
using std::memory_order_relaxed;
#else
#include <stdatomic.h>
#endif
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

/* A function that shows up in stacks under its own name. */
#ifdef __clang__
#define SITE_FN __attribute__((noinline))
#else
#define SITE_FN __attribute__((noipa))
#endif

/* Values the compiler knows nothing about: no call is folded, elided or warned about. */
static inline __attribute__((always_inline)) void *opaque(void *ptr)
{
	__asm__ volatile("" : "+r"(ptr) : : "memory");
	return ptr;
}

static inline __attribute__((always_inline)) size_t opaque_size(size_t size)
{
	__asm__ volatile("" : "+r"(size));
	return size;
}

struct site {
	const char *label, *name;
	atomic_ulong alloc_objects, alloc_space;
	atomic_ulong freed_objects, freed_space;
} __attribute__((aligned(64)));

/* The counters of function `fn`, as `fn_site`. */
#define SITE(fn) SITE_LABELLED("site", fn)
/* Of a function that has others between itself and the allocator. */
#define SITE_BELOW(fn) SITE_LABELLED("below", fn)

#define SITE_LABELLED(label, fn)                                                                   \
	static struct site fn##_site                                                               \
		__attribute__((section("truth_sites"), used)) = {label, #fn, 0, 0, 0, 0}

/* Set by the linker. */
extern struct site __start_truth_sites[], __stop_truth_sites[];

static inline void site_add(struct site *site, size_t size)
{
	atomic_fetch_add_explicit(&site->alloc_objects, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&site->alloc_space, size, memory_order_relaxed);
}

static inline void site_remove(struct site *site, size_t size)
{
	atomic_fetch_add_explicit(&site->freed_objects, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&site->freed_space, size, memory_order_relaxed);
}

/* A live block and the site that owns it. */
struct block {
	void *ptr;
	size_t size;
	struct site *site;
};

/* Counts the block in if there is one. */
static inline struct block block_new(struct site *site, void *ptr, size_t size)
{
	if (ptr)
		site_add(site, size);
	return (struct block){ptr, size, site};
}

/* Counts the block out; the caller frees it. */
static inline void *block_take(struct block *block)
{
	void *ptr = block->ptr;

	if (ptr)
		site_remove(block->site, block->size);
	block->ptr = NULL;
	return ptr;
}

/* A block that the allocator resized where it lies is one that realloc did not have to move. */
static inline struct block block_resized(struct block *old, struct site *site, size_t size)
{
	void *ptr = block_take(old);

	return block_new(site, ptr, size);
}

static inline void block_free(struct block *block)
{
	free(opaque(block_take(block)));
}

/* After ptr = realloc(old->ptr, size) succeeded: realloc(p, 0) gives NULL and frees. */
static inline struct block block_moved(struct block *old, struct site *site, void *ptr, size_t size)
{
	block_take(old);
	return block_new(site, ptr, size);
}

/*
 * Whether two functions are one allocator's: a preloaded one need not have them all, and what libc
 * has in their place knows nothing of its blocks. All of a static program is one image.
 */
static inline bool same_image(void *function, void *other)
{
	Dl_info info = {}, other_info = {};

	dladdr(function, &info);
	dladdr(other, &other_info);
	return info.dli_fbase == other_info.dli_fbase;
}

/* Whether malloc is glibc's own: some things are certain only there. */
static inline bool is_glibc_malloc(void)
{
#ifdef __GLIBC__
	return same_image((void *)malloc, (void *)gnu_get_libc_version);
#else
	return false;
#endif
}

static bool truth_waits;

static inline void truth_wait_line(void)
{
	char byte;

	while (truth_waits && read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
		;
}

/* Takes `--wait` out of the arguments. */
static inline void truth_start(int *argc, char **argv)
{
	static char buffer[BUFSIZ];

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	if (*argc > 1 && strcmp(argv[1], "--wait") == 0) {
		memmove(&argv[1], &argv[2], (*argc - 1) * sizeof(*argv));
		--*argc;
		truth_waits = true;
		printf("ready %d\n", getpid());
		fflush(stdout);
	}
	truth_wait_line();
}

static inline void truth_print(void)
{
	for (struct site *site = __start_truth_sites; site < __stop_truth_sites; site++)
		printf("%s=%s alloc_objects=%lu alloc_space=%lu inuse_objects=%lu "
		       "inuse_space=%lu\n",
		       site->label, site->name, (unsigned long)site->alloc_objects,
		       (unsigned long)site->alloc_space,
		       (unsigned long)(site->alloc_objects - site->freed_objects),
		       (unsigned long)(site->alloc_space - site->freed_space));
	fflush(stdout);
}

/* Prints the truth and waits for permission to exit; to be returned from main(). */
static inline int truth_finish(void)
{
	truth_print();
	truth_wait_line();
	return 0;
}

/* For what the workload itself needs to go right. */
#define require(condition)                                                                         \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #condition);     \
			_exit(3);                                                                  \
		}                                                                                  \
	} while (0)

#endif
