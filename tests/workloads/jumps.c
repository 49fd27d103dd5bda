/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Control flow that leaves realloc by another door: it faults, and the handler jumps out or ends
 * the thread. The block stays live. Calls at both deeper and shallower stack levels follow.
 */
#include <pthread.h>
#include <setjmp.h>
#include <sys/syscall.h>

#include "fault.h"

#define TIMES	10
#define LEVELS	40
#define THREADS 16

static __thread sigjmp_buf escape;
static __thread bool dies;

SITE(map_block);
SITE_FN static struct block map_block(size_t size)
{
	struct block block = block_new(&map_block_site, opaque(malloc(size)), size);

	require(block.ptr);
	return block;
}

SITE(plain_malloc);
SITE_FN static struct block plain_malloc(size_t size)
{
	return block_new(&plain_malloc_site, opaque(malloc(size)), size);
}

SITE(plain_realloc);
SITE_FN static struct block plain_realloc(struct block old, size_t size)
{
	void *ptr = opaque(realloc(opaque(old.ptr), size));

	require(ptr);
	return block_moved(&old, &plain_realloc_site, ptr, size);
}

static void on_fault(int sig)
{
	(void)sig;
	if (dies)
		syscall(SYS_exit, 0); /* this thread alone, at once */
	siglongjmp(escape, 1);
}

SITE(fault_in_realloc);
SITE_FN static void fault_in_realloc(const struct block *block)
{
	protect_header(block, PROT_NONE);
	if (sigsetjmp(escape, 1) == 0) {
		opaque(realloc(opaque(block->ptr), 2 * block->size));
		require(!"no fault");
	}
	protect_header(block, PROT_READ | PROT_WRITE);
}

/* Runs one of the two at a deeper stack level. */
SITE_FN static void fault_below(int levels, const struct block *block)
{
	volatile char frame[200] = {0};

	if (levels > 0)
		fault_below(levels - 1, block);
	else
		fault_in_realloc(block);
	(void)frame[0];
}

SITE_FN static struct block malloc_below(int levels, size_t size)
{
	volatile char frame[200] = {0};
	struct block block;

	block = levels > 0 ? malloc_below(levels - 1, size) : plain_malloc(size);
	(void)frame[0];
	return block;
}

static void run_faults(void)
{
	for (size_t i = 1; i <= TIMES; i++) {
		struct block block = map_block(8 * MIB + i);
		struct block next, other;

		fault_in_realloc(&block);
		next = malloc_below(i % 2 ? LEVELS : 0, 100 + i);
		fault_below(LEVELS, &block);
		other = plain_malloc(200 + i);
		fault_below(i % 3 ? LEVELS : 1, &block);
		other = plain_realloc(other, 3000 + i);
		block_free(&next);
		fault_in_realloc(&block);
		if (i % 2)
			block = plain_realloc(block, 9 * MIB + i);
		if (i % 5 == 0)
			block_free(&other);
		/* Some of each kind stay live to the end. */
		if (i % 3)
			block_free(&block);
	}
}

static atomic_int dying;

static void *die_in_realloc(void *arg)
{
	const struct block *block = arg;

	dies = true;
	atomic_store(&dying, gettid());
	opaque(realloc(opaque(block->ptr), 2 * block->size));
	require(!"no fault");
	return NULL;
}

/* The thread is gone between realloc's entry and its return. */
static void run_deaths(void)
{
	for (size_t i = 1; i <= TIMES; i++) {
		struct block block = map_block(4 * MIB + i);
		struct block next;
		pthread_t thread;

		protect_header(&block, PROT_NONE);
		require(pthread_create(&thread, NULL, die_in_realloc, &block) == 0);
		require(pthread_join(thread, NULL) == 0);
		/* Old kernels wake the joiner before they tell tracers of the exit: until it is
		 * gone. */
		while (syscall(SYS_tgkill, getpid(), atomic_load(&dying), 0) == 0)
			sched_yield();
		protect_header(&block, PROT_READ | PROT_WRITE);
		next = plain_malloc(50 + i);
		if (i % 2)
			block_free(&block);
		block_free(&next);
	}
}

static void on_signal(int sig)
{
	(void)sig;
	siglongjmp(escape, 1);
}

/* Jumps between two calls of realloc, each from another depth. */
SITE_FN static void raise_below(int levels, struct block *block)
{
	volatile char frame[200] = {0};

	if (levels > 0)
		raise_below(levels - 1, block);
	*block = plain_realloc(*block, block->size + 10);
	raise(SIGUSR1);
	(void)frame[0];
}

static void run_signals(void)
{
	struct block block = plain_malloc(16);

	for (int i = 0; i < 10 * TIMES; i++)
		if (sigsetjmp(escape, 1) == 0)
			raise_below(i % LEVELS, &block);
	block_free(&block);
}

static void free_block(void *arg)
{
	block_free(arg);
}

static atomic_int looping;

static void *realloc_until_cancelled(void *arg)
{
	struct block block = plain_malloc(64);
	size_t size = 64;
	bool counted = false;

	(void)arg;
	pthread_cleanup_push(free_block, &block);
	for (;;) {
		size = size < 100000 ? size * 3 : 64;
		block = plain_realloc(block, size);
		if (!counted)
			atomic_fetch_add(&looping, 1);
		counted = true;
		pthread_testcancel();
		sched_yield();
	}
	pthread_cleanup_pop(1);
	return NULL;
}

static void run_cancels(void)
{
	pthread_t threads[THREADS];
	void *result;

	for (int i = 0; i < THREADS; i++)
		require(pthread_create(&threads[i], NULL, realloc_until_cancelled, NULL) == 0);
	while (atomic_load(&looping) < THREADS)
		sched_yield();
	for (int i = 0; i < THREADS; i++)
		require(pthread_cancel(threads[i]) == 0);
	for (int i = 0; i < THREADS; i++) {
		require(pthread_join(threads[i], &result) == 0);
		require(result == PTHREAD_CANCELED);
	}
}

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	fault_start(on_fault);
	signal(SIGUSR1, on_signal);
	run_faults();
	run_deaths();
	run_signals();
	run_cancels();
	return truth_finish();
}
