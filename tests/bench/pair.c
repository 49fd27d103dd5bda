/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a malloc and its free cost, for mixed small sizes: `pair SECONDS` prints `N.N ns per pair,
 * N.N of CPU`. With `--wait` in front it prints `ready PID` and waits for a line on stdin before it
 * starts, and for another before it ends.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZES 64
#define LIVE  16 /* blocks between a malloc and its free */
#define BATCH 256

static void wait_line(void)
{
	char byte;

	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n')
		;
}

static double now_seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	static char buffer[BUFSIZ];
	void *live[LIVE] = {NULL};
	size_t sizes[SIZES];
	unsigned long pairs = 0;
	double start, start_cpu, elapsed, cpu, seconds;
	bool waits = false;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (size_t i = 0; i < SIZES; i++)
		sizes[i] = 8 + i * 2654435761u % 400;
	if (argc > 1 && strcmp(argv[1], "--wait") == 0) {
		printf("ready %d\n", getpid());
		wait_line();
		waits = true;
		argv++;
		argc--;
	}
	seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
	start = now_seconds(CLOCK_MONOTONIC);
	start_cpu = now_seconds(CLOCK_PROCESS_CPUTIME_ID);
	do {
		for (int i = 0; i < BATCH; i++, pairs++) {
			void *ptr = malloc(sizes[pairs % SIZES]);

			/* The compiler may drop a pair that nobody looks at. */
			__asm__ volatile("" : "+r"(ptr) : : "memory");
			free(live[pairs % LIVE]);
			live[pairs % LIVE] = ptr;
		}
		elapsed = now_seconds(CLOCK_MONOTONIC) - start;
	} while (elapsed < seconds);
	cpu = now_seconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
	printf("%.1f ns per pair, %.1f of CPU\n", elapsed * 1e9 / pairs, cpu * 1e9 / pairs);
	if (waits)
		wait_line();
	return 0;
}
