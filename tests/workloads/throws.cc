// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Exceptions that leave the allocator: operator new that finds no memory, a new handler that throws
// one of its own, from several threads at once. Every one must reach its handler, and what is
// allocated in between be counted as ever.
#include <new>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "truth.h"

#define TIMES	50
#define THREADS 4
#define MARGIN	(size_t{1} << 30)
// More than the margin, and no more than a process could have.
#define TOO_BIG opaque_size(size_t{1} << 33)
#define SIZE	1000

namespace
{

std::atomic<unsigned> caught;

struct Refused {
};

void refuse()
{
	throw Refused{};
}

// What the process may have from now on: what it has, and the margin.
void limit_memory()
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	struct rlimit limit;

	require(file && fscanf(file, "%lu", &pages) == 1);
	fclose(file);
	limit.rlim_cur = limit.rlim_max = pages * 4096 + MARGIN;
	require(!setrlimit(RLIMIT_AS, &limit));
}

} // namespace

extern "C" {

SITE(throws_between);
SITE_FN void *throws_between()
{
	return block_new(&throws_between_site, opaque(operator new(SIZE)), SIZE).ptr;
}

SITE_FN void throws_bad_alloc()
{
	try {
		opaque(operator new(TOO_BIG));
	} catch (const std::bad_alloc &) {
		caught++;
		return;
	}
	require(!"the memory was there");
}

SITE_FN void throws_array_aligned()
{
	try {
		opaque(operator new[](TOO_BIG, std::align_val_t{64}));
	} catch (const std::bad_alloc &) {
		caught++;
		return;
	}
	require(!"the memory was there");
}

SITE_FN void throws_from_handler()
{
	try {
		opaque(operator new(TOO_BIG));
	} catch (const Refused &) {
		caught++;
		return;
	}
	require(!"the memory was there");
}

SITE_FN void throws_nothrow()
{
	require(!opaque(operator new(TOO_BIG, std::nothrow)));
}
}

namespace
{

void work(void (*throws)())
{
	for (int i = 0; i < TIMES; i++) {
		void *kept = throws_between(), *freed = throws_between();

		throws();
		throws_between_site.freed_objects++;
		throws_between_site.freed_space += SIZE;
		operator delete(freed);
		opaque(kept);
	}
}

void work_in_threads(void (*throws)())
{
	std::vector<std::thread> threads;

	for (int i = 0; i < THREADS; i++)
		threads.emplace_back(work, throws);
	for (auto &thread : threads)
		thread.join();
}

} // namespace

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	limit_memory();
	work_in_threads(throws_bad_alloc);
	work_in_threads(throws_array_aligned);
	work_in_threads(throws_nothrow);
	std::set_new_handler(refuse);
	work_in_threads(throws_from_handler);
	require(caught == 3 * THREADS * TIMES);
	return truth_finish();
}
