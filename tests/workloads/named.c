/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Threads with names: `named` has some that allocate for each other, `named NAMES` one that takes
 * so many names in turn. A site of the truth is the name that a thread had when it allocated.
 */
#include <pthread.h>
#include <sys/prctl.h>

#include "truth.h"

#define OF_NAME(id, name)                                                                          \
	static struct site id                                                                      \
		__attribute__((section("truth_sites"), used)) = {"site", name, 0, 0, 0, 0}

OF_NAME(worker_1, "worker-1");
OF_NAME(worker_2, "worker-2");
OF_NAME(io, "io");
OF_NAME(mover, "mover");
OF_NAME(before, "its_first_name");
OF_NAME(after, "a_name_that_is_");
OF_NAME(unnamed, "(unnamed)");
OF_NAME(bytes, "\303\244?");

#define EACH 100

struct job {
	struct site *site; /* the name */
	size_t size;
	struct block *blocks; /* EACH of them */
	pthread_t thread;
};

static struct block blocks[9 * EACH];
static struct job jobs[] = {
	{.site = &worker_1, .size = 100, .blocks = &blocks[0]},
	{.site = &worker_2, .size = 200, .blocks = &blocks[EACH]},
	/* Three of one name. */
	{.site = &io, .size = 300, .blocks = &blocks[2 * EACH]},
	{.site = &io, .size = 400, .blocks = &blocks[3 * EACH]},
	{.site = &io, .size = 500, .blocks = &blocks[4 * EACH]},
};
#define JOBS (sizeof(jobs) / sizeof(jobs[0]))

static void take_name(const char *name)
{
	require(prctl(PR_SET_NAME, name) == 0);
}

SITE_FN static void named_malloc(struct block *to, struct site *site, size_t size)
{
	for (int i = 0; i < EACH; i++)
		to[i] = block_new(site, opaque(malloc(size)), size);
}

/* What one thread has allocated becomes the other's. */
SITE_FN static void named_realloc(struct block *at, struct site *site, size_t size)
{
	for (int i = 0; i < EACH / 2; i++) {
		void *ptr = opaque(realloc(opaque(at[i].ptr), size));

		require(ptr);
		at[i] = block_moved(&at[i], site, ptr, size);
	}
}

static void *work(void *arg)
{
	struct job *job = arg;

	take_name(job->site->name);
	named_malloc(job->blocks, job->site, job->size);
	return NULL;
}

/* Frees and moves what the others have allocated. */
static void *move(void *name)
{
	take_name(name);
	named_realloc(jobs[1].blocks, &mover, 5000);
	for (int i = 0; i < EACH; i += 3)
		for (size_t j = 0; j < JOBS; j++)
			block_free(&jobs[j].blocks[i]);
	return NULL;
}

static void *rename_itself(void *name)
{
	take_name(name);
	named_malloc(&blocks[5 * EACH], &before, 600);
	/* The kernel keeps 15 bytes. */
	take_name("a_name_that_is_too_long");
	named_malloc(&blocks[6 * EACH], &after, 700);
	take_name("");
	named_malloc(&blocks[7 * EACH], &unnamed, 800);
	/* One byte of two is left of the last letter of a name that was cut. */
	take_name("\303\244\303");
	named_malloc(&blocks[8 * EACH], &bytes, 900);
	/* By another name than they were allocated by. */
	for (int i = 0; i < EACH; i += 2)
		block_free(&blocks[5 * EACH + i]);
	return NULL;
}

static void run(void *(*function)(void *arg), void *arg)
{
	pthread_t thread;

	require(pthread_create(&thread, NULL, function, arg) == 0);
	require(pthread_join(thread, NULL) == 0);
}

SITE_FN static void *many_malloc(size_t size)
{
	return opaque(malloc(size));
}

static void *take_names(void *arg)
{
	unsigned long count = (uintptr_t)arg;
	char name[32];

	for (unsigned long i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "name-%lu", i);
		take_name(name);
		require(many_malloc(100));
	}
	/* Known or not, they are what they were. */
	for (unsigned long i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "name-%lu", i);
		take_name(name);
		require(many_malloc(100));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	if (argc > 1) {
		run(take_names, (void *)(uintptr_t)strtoul(argv[1], NULL, 10));
		return 0;
	}
	for (size_t i = 0; i < JOBS; i++)
		require(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]) == 0);
	for (size_t i = 0; i < JOBS; i++)
		require(pthread_join(jobs[i].thread, NULL) == 0);
	run(move, (void *)mover.name);
	run(rename_itself, (void *)before.name);
	/* The first thread keeps the program's name. */
	for (int i = 0; i < EACH; i += 7)
		block_free(&blocks[8 * EACH + i]);
	return truth_finish();
}
