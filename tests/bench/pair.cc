/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a malloc and its free cost, for mixed small sizes: `pair SECONDS` prints `N.N ns per pair,
 * N.N of CPU`. With `--new` in front it does the same with operator new and sized delete, with
 * `--throw` with throw and catch, with `--pages` with the first touch of a page. With `--wait` in
 * front it prints `ready PID` and waits for a line on stdin before it starts, and for another
 * before it ends.
 *
 * `pair --turns COUNT` takes turns with others: it prints `ready PID`, and then COUNT times waits
 * for a byte on stdin, runs for 5 ms, and passes the byte on to descriptor 3. In the end it prints
 * the ns of CPU per pair of each turn.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#define SIZES 64
#define LIVE  16 /* blocks between a malloc and its free */
#define BATCH 256
#define TURN  0.005 /* seconds */

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

/* Pages that are given back at once, so that each is a page fault again. */
static void touch_pages(unsigned long)
{
	static char *pages;

	if (!pages) {
		pages = static_cast<char *>(mmap(nullptr, BATCH * 4096, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
		if (pages == MAP_FAILED)
			abort();
	}
	for (int i = 0; i < BATCH; i++)
		static_cast<volatile char *>(pages)[i * 4096] = 1;
	madvise(pages, BATCH * 4096, MADV_DONTNEED);
}

struct cost {
	double wall_ns, cpu_ns; /* per pair */
};

/*
 * In a heap of some size few blocks lie at the start of a page, in an empty one the first of each
 * size. To tcmalloc's sized delete they are special: it hands them to free.
 */
static void fill_heap()
{
	for (size_t size : sizes)
		if (!malloc(size))
			abort();
}

static struct cost measure(void (*run)(unsigned long), double seconds)
{
	double start = now_seconds(CLOCK_MONOTONIC), elapsed;
	double start_cpu = now_seconds(CLOCK_PROCESS_CPUTIME_ID), cpu;
	unsigned long pairs = 0;

	do {
		run(pairs);
		pairs += BATCH;
		elapsed = now_seconds(CLOCK_MONOTONIC) - start;
	} while (elapsed < seconds);
	cpu = now_seconds(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
	return {elapsed * 1e9 / pairs, cpu * 1e9 / pairs};
}

static int take_turns(void (*run)(unsigned long), long count)
{
	std::vector<double> turns(count);
	char byte;

	for (double &turn : turns) {
		if (read(STDIN_FILENO, &byte, 1) != 1)
			return 1;
		turn = measure(run, TURN).cpu_ns;
		if (write(3, &byte, 1) != 1)
			return 1;
	}
	for (double turn : turns)
		printf("%.1f\n", turn);
	return 0;
}

int main(int argc, char **argv)
{
	void (*run)(unsigned long) = run_heap<c_allocate, c_release>;
	bool waits = false, turns = false;
	static char buffer[BUFSIZ];
	struct cost cost;

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	for (size_t i = 0; i < SIZES; i++)
		sizes[i] = 8 + i * 2654435761u % 400;
	fill_heap();
	for (; argc > 1 && argv[1][0] == '-'; argv++, argc--) {
		waits |= !strcmp(argv[1], "--wait");
		turns |= !strcmp(argv[1], "--turns");
		if (!strcmp(argv[1], "--new"))
			run = run_heap<cxx_allocate, cxx_release>;
		if (!strcmp(argv[1], "--throw"))
			run = run_throw;
		if (!strcmp(argv[1], "--pages"))
			run = touch_pages;
	}
	if (waits || turns)
		printf("ready %d\n", getpid());
	fflush(stdout);
	if (turns)
		return take_turns(run, argc > 1 ? strtol(argv[1], nullptr, 10) : 1);
	if (waits)
		wait_line();
	cost = measure(run, argc > 1 ? strtod(argv[1], nullptr) : 1);
	printf("%.1f ns per pair, %.1f of CPU\n", cost.wall_ns, cost.cpu_ns);
	if (waits)
		wait_line();
	return 0;
}
