/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a malloc and its free cost, for mixed small sizes: `pair SECONDS` prints `N.N ns per pair,
 * N.N of CPU`. `pair --new SECONDS` does the same with operator new and sized delete, and
 * `pair --throw SECONDS` with throw and catch. With `--wait` in front it prints `ready PID` and
 * waits for a line on stdin before it starts, and for another before it ends.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <unistd.h>

#define SIZES 64
#define LIVE  16 /* blocks between a malloc and its free */
#define BATCH 256

static size_t sizes[SIZES];

static void wait_line()
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

template <void *(*ALLOCATE)(size_t), void (*RELEASE)(void *, size_t)>
static void run_heap(unsigned long first)
{
	static void *live[LIVE];

	for (unsigned long i = first; i < first + BATCH; i++) {
		void *ptr = ALLOCATE(sizes[i % SIZES]);

		/* The compiler may drop a pair that nobody looks at. */
		__asm__ volatile("" : "+r"(ptr) : : "memory");
		RELEASE(live[i % LIVE], sizes[(i - LIVE) % SIZES]);
		live[i % LIVE] = ptr;
	}
}

static void *c_allocate(size_t size)
{
	return malloc(size);
}

static void c_release(void *ptr, size_t size)
{
	(void)size;
	free(ptr);
}

static void *cxx_allocate(size_t size)
{
	return ::operator new(size);
}

static void cxx_release(void *ptr, size_t size)
{
	::operator delete(ptr, size);
}

static void run_throw(unsigned long first)
{
	for (unsigned long i = first; i < first + BATCH; i++) {
		try {
			throw i;
		} catch (unsigned long) {
		}
	}
}

static void measure(void (*run)(unsigned long), double seconds)
{
	double start = now_seconds(CLOCK_MONOTONIC), elapsed, cpu;
	double start_cpu = now_seconds(CLOCK_PROCESS_CPUTIME_ID);
	unsigned long pairs = 0;

	do {
		run(pairs);
		pairs += BATCH;
		elapsed = now_seconds(CLOCK_MONOTONIC) - start;
	} while (elapsed < seconds);
	cpu = now_seconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
	printf("%.1f ns per pair, %.1f of CPU\n", elapsed * 1e9 / pairs, cpu * 1e9 / pairs);
}

int main(int argc, char **argv)
{
	void (*run)(unsigned long) = run_heap<c_allocate, c_release>;
	static char buffer[BUFSIZ];
	bool waits = false;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (size_t i = 0; i < SIZES; i++)
		sizes[i] = 8 + i * 2654435761u % 400;
	for (; argc > 1 && argv[1][0] == '-'; argv++, argc--) {
		if (!strcmp(argv[1], "--wait"))
			waits = true;
		else if (!strcmp(argv[1], "--new"))
			run = run_heap<cxx_allocate, cxx_release>;
		else if (!strcmp(argv[1], "--throw"))
			run = run_throw;
		else
			return 2;
	}
	if (waits) {
		printf("ready %d\n", getpid());
		wait_line();
	}
	measure(run, argc > 1 ? strtod(argv[1], nullptr) : 1);
	if (waits)
		wait_line();
	return 0;
}
