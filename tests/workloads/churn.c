/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A thousand threads that come and go: `churn [THREADS]`. Each fills its thread cache with freed
 * blocks, which libc frees a second time when the thread ends, and leaves one live block.
 */
#include <pthread.h>

#include "truth.h"

#define AT_ONCE	  8
#define PER_CLASS 7 /* blocks of one size that a thread cache holds */
#define CLASSES	  5

SITE(thread_scratch);
SITE_FN static struct block thread_scratch(size_t size)
{
	return block_new(&thread_scratch_site, opaque(malloc(size)), size);
}

SITE(thread_result);
SITE_FN static struct block thread_result(size_t size)
{
	return block_new(&thread_result_site, opaque(malloc(size)), size);
}

static void *worker(void *arg)
{
	struct block *result = arg;
	struct block blocks[CLASSES * PER_CLASS];

	for (int i = 0; i < CLASSES * PER_CLASS; i++)
		blocks[i] = thread_scratch(24 + 32 * (i % CLASSES));
	*result = thread_result(result->size);
	for (int i = 0; i < CLASSES * PER_CLASS; i++)
		block_free(&blocks[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long count, done = 0;

	truth_start(&argc, argv);
	count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
	while (done < count) {
		pthread_t threads[AT_ONCE];
		struct block results[AT_ONCE];
		unsigned long n = count - done < AT_ONCE ? count - done : AT_ONCE;

		for (unsigned long i = 0; i < n; i++) {
			results[i].size = 56 + (done + i) % 100;
			require(pthread_create(&threads[i], NULL, worker, &results[i]) == 0);
		}
		for (unsigned long i = 0; i < n; i++) {
			require(pthread_join(threads[i], NULL) == 0);
			if ((done + i) % 10)
				block_free(&results[i]);
		}
		done += n;
	}
	return truth_finish();
}
