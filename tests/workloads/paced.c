/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Allocates at a known rate: `paced PAIRS [WORK]` makes so many malloc+free pairs of 100 bytes per
 * second, half of them in each of two threads, with WORK turns of an empty loop each. Prints
 * `paced PID`, and for each line on stdin `pairs COUNT cpu NS`: those since the last line, and the
 * CPU time that each took. The end of stdin ends it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "truth.h"

#define TICK_NS 10000000ull

static unsigned long pairs, work;
static atomic_bool done;

static unsigned long long now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void *run(void *arg)
{
	unsigned long long next = now_ns(CLOCK_MONOTONIC);
	unsigned long per_tick = pairs / 2 / (1000000000ull / TICK_NS);
	atomic_ulong *count = arg;

	while (!done) {
		struct timespec until;

		for (unsigned long i = 0; i < per_tick; i++) {
			free(opaque(malloc(100)));
			/* In a register: through memory a turn takes one or three cycles, by
			 * chance. */
			for (unsigned long n = work; n; n--)
				__asm__ volatile("" : "+r"(n));
		}
		*count += per_tick;
		/* What was late is caught up with. */
		next += TICK_NS;
		until.tv_sec = next / 1000000000;
		until.tv_nsec = next % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static atomic_ulong counts[2];
	unsigned long last = 0;
	unsigned long long last_ns;
	pthread_t threads[2];
	char byte;

	require(argc > 1);
	pairs = strtoul(argv[1], NULL, 10);
	work = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	printf("paced %d\n", getpid());
	fflush(stdout);
	for (int i = 0; i < 2; i++)
		require(pthread_create(&threads[i], NULL, run, &counts[i]) == 0);
	last_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	while (read(STDIN_FILENO, &byte, 1) == 1) {
		unsigned long long cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
		unsigned long count = counts[0] + counts[1];

		if (byte != '\n')
			continue;
		printf("pairs %lu cpu %.0f\n", count - last,
		       (double)(cpu_ns - last_ns) / (count - last));
		fflush(stdout);
		last = count;
		last_ns = cpu_ns;
	}
	done = true;
	for (int i = 0; i < 2; i++)
		require(pthread_join(threads[i], NULL) == 0);
	return 0;
}
