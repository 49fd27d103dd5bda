/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An allocator's owner that samples by itself and tells of it, by the USDT probes otel_memory: its
 * truth is what it has told. `told [--wait] [ROUNDS]`; built with -DSEMAPHORES it tells only while
 * somebody listens, and counts nothing else.
 */
#ifdef SEMAPHORES
#define _SDT_HAS_SEMAPHORES 1
#endif
#include <pthread.h>
#include <sys/sdt.h>

#include "truth.h"

#ifdef SEMAPHORES
unsigned short otel_memory_alloc_semaphore __attribute__((section(".probes"), used));
unsigned short otel_memory_free_semaphore __attribute__((section(".probes"), used));
#define LISTENED (*(volatile unsigned short *)&otel_memory_alloc_semaphore > 0)
#else
#define LISTENED true
#endif

#define THREADS 3
#define KEPT	7 /* one in so many is not freed */

/* The compiler is to choose different places for the arguments of each. */
#define DEFINE_SITE(fn, size_, objects_)                                                           \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(void)                                                       \
	{                                                                                          \
		size_t size = size_;                                                               \
		void *ptr = opaque(malloc(size));                                                  \
                                                                                                   \
		if (!LISTENED)                                                                     \
			return (struct block){ptr, 0, &fn##_site};                                 \
		DTRACE_PROBE3(otel_memory, alloc, ptr, size, size *(objects_));                    \
		atomic_fetch_add(&fn##_site.alloc_objects, objects_);                              \
		atomic_fetch_add(&fn##_site.alloc_space, size *(objects_));                        \
		return (struct block){ptr, objects_, &fn##_site};                                  \
	}

DEFINE_SITE(tell_small, opaque_size(48), opaque_size(10000))
DEFINE_SITE(tell_constant, 4096, 100)
DEFINE_SITE(tell_large, opaque_size(3000000), 1)

SITE_FN static void untell(struct block *block, size_t size)
{
	/* One that was not told of is not told of now. */
	if (block->size) {
		DTRACE_PROBE1(otel_memory, free, block->ptr);
		atomic_fetch_add(&block->site->freed_objects, block->size);
		atomic_fetch_add(&block->site->freed_space, size * block->size);
	}
	free(block->ptr);
}

static unsigned long rounds = 300;

static void *run(void *arg)
{
	(void)arg;
	for (unsigned long i = 0; i < rounds; i++) {
		struct block small = tell_small(), constant = tell_constant(), large = tell_large();

		if (i % KEPT)
			untell(&small, 48);
		if (i % KEPT != 1)
			untell(&constant, 4096);
		untell(&large, 3000000);
		/* A block that nobody was told of. */
		free(opaque(malloc(100)));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	truth_start(&argc, argv);
	if (argc > 1)
		rounds = strtoul(argv[1], NULL, 10);
	for (int i = 0; i < THREADS; i++)
		require(pthread_create(&threads[i], NULL, run, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		require(pthread_join(threads[i], NULL) == 0);
	return truth_finish();
}
