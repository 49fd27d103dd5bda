/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes memory resident in known amounts.
 *
 * faults [--wait] PAGES: each function makes so many pages resident, or a known part of them, in
 * another kind of memory, and prints `resident=FUNCTION memory=KIND bytes=N`; those for which
 * nothing is to be counted have 0.
 * faults [--wait] PAGES PERIOD: three functions in turn, always in the same order, PERIOD pages a
 * turn: 1, 2 and the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "truth.h"

#define PAGE 4096ul
#define HUGE (2ul << 20)
/* Farther down than anything has been before. */
#define STACK_GAP (512ul << 10)

static void tell(const char *function, const char *memory, size_t bytes)
{
	printf("resident=%s memory=%s bytes=%zu\n", function, memory, bytes);
}

static char *map(size_t size, int flags, int fd)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);

	require(memory != MAP_FAILED);
	/* Whatever the machine is set to. */
	if (flags & MAP_ANONYMOUS && flags & MAP_PRIVATE)
		madvise(memory, size, MADV_NOHUGEPAGE);
	return memory;
}

static char *map_anonymous(size_t pages)
{
	return map(pages * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* A file's pages, all of them in the page cache; opened anew, so that nothing is left to read. */
static int make_file(size_t pages)
{
	char path[] = "/tmp/heaptap-faults-XXXXXX", page[PAGE];
	int fd = mkstemp(path);

	require(fd >= 0);
	unlink(path);
	memset(page, 1, sizeof(page));
	for (size_t i = 0; i < pages; i++)
		require(write(fd, page, sizeof(page)) == sizeof(page));
	return fd;
}

/* One byte of each page; the caller's code, so that faults are its own. */
#define TOUCH(memory, first, count)                                                                \
	for (size_t touch = first; touch < (size_t)(first) + (count); touch++)                     \
	((volatile char *)(memory))[touch * PAGE] = 1

#define LOOK(memory, count)                                                                        \
	for (size_t look = 0; look < (count); look++)                                              \
	(void)((volatile char *)(memory))[look * PAGE]

SITE_FN static void touch_one(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

SITE_FN static void touch_two(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

SITE_FN static void touch_three(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

SITE_FN static void write_shared_file(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

SITE_FN static void write_shared_memory(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

/* One fault maps what lies around in the page cache, too. */
SITE_FN static void read_file(char *memory, size_t pages)
{
	LOOK(memory, pages);
}

/* Copies of a file's pages: memory of the process's own. */
SITE_FN static void copy_private_file(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

/* Of the zero page: nothing. */
SITE_FN static void look_at_zeroes(char *memory, size_t pages)
{
	LOOK(memory, pages);
}

SITE_FN static void replace_zeroes(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

/* The child that shared it is gone: the page only becomes writable again. */
SITE_FN static void touch_after_fork(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

/* The child has it still: the page is copied. */
SITE_FN static void copy_after_fork(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

/* The page is there, and was not accessible for a while. */
SITE_FN static void touch_after_protect(char *memory, size_t pages)
{
	TOUCH(memory, 0, pages);
}

SITE_FN static void touch_stack(size_t pages)
{
	char *here = __builtin_frame_address(0);

	for (size_t i = 0; i < pages; i++)
		((volatile char *)here)[-(ssize_t)(STACK_GAP + i * PAGE)] = 1;
}

/* In a system call. */
SITE_FN static void fill_by_kernel(char *memory, size_t pages, int fd)
{
	require(pread(fd, opaque(memory), pages * PAGE, 0) == (ssize_t)(pages * PAGE));
}

SITE_FN static void touch_huge(char *memory, size_t count)
{
	for (size_t i = 0; i < count; i++)
		((volatile char *)memory)[i * HUGE] = 1;
}

/* Each of these is one large folio of small pages, if the machine is set to that. */
#define PART  (64ul << 10)
#define PARTS 8

SITE_FN static void touch_parts(char *memory, size_t count)
{
	for (size_t i = 0; i < count; i++)
		((volatile char *)memory)[i * PART] = 1;
}

SITE_FN static void look_at_huge_zeroes(char *memory, size_t pages)
{
	LOOK(memory, pages);
}

static void fork_and_wait(void)
{
	pid_t child = fork();

	require(child >= 0);
	if (!child)
		_exit(0);
	require(waitpid(child, NULL, 0) == child);
}

static void run_fork(size_t pages)
{
	char *memory = map_anonymous(pages);
	int gate[2];
	pid_t child;

	touch_one(memory, pages);
	fork_and_wait();
	touch_after_fork(memory, pages);
	require(!pipe(gate));
	child = fork();
	require(child >= 0);
	if (!child) {
		char byte;

		close(gate[1]);
		_exit(read(gate[0], &byte, 1) != 0);
	}
	copy_after_fork(memory, pages);
	close(gate[1]);
	require(waitpid(child, NULL, 0) == child);
	tell("touch_after_fork", "anonymous", 0);
	tell("copy_after_fork", "anonymous", pages * PAGE);
	require(!mprotect(memory, pages * PAGE, PROT_NONE));
	require(!mprotect(memory, pages * PAGE, PROT_READ | PROT_WRITE));
	touch_after_protect(memory, pages);
	tell("touch_after_protect", "anonymous", 0);
}

/* What of a mapping is resident, as the kernel counts it. */
static size_t resident(const char *memory)
{
	char line[256];
	size_t start, kilobytes, ret = 0;
	bool here = false;
	FILE *file = fopen("/proc/self/smaps", "r");

	require(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%zx-%*x ", &start) == 1 && strchr(line, '-'))
			here = start <= (size_t)memory;
		if (here && sscanf(line, "Rss: %zu kB", &kilobytes) == 1)
			ret = kilobytes << 10;
	}
	fclose(file);
	return ret;
}

/* A new mapping, of huge pages if the kernel gives some; from a multiple of their size on. */
static char *map_huge(size_t size)
{
	char *area =
		mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *memory = (char *)(((size_t)area + HUGE - 1) / HUGE * HUGE);

	require(area != MAP_FAILED);
	madvise(memory, size, MADV_HUGEPAGE);
	return memory;
}

static void run_huge(void)
{
	char *memory = map_huge(4 * HUGE), *parts = map_huge(PARTS * PART);

	touch_huge(memory, 4);
	tell("touch_huge", "anonymous", resident(memory));
	touch_parts(parts, PARTS);
	tell("touch_parts", "anonymous", resident(parts));
	look_at_huge_zeroes(map_huge(HUGE), HUGE / PAGE);
	tell("look_at_huge_zeroes", "anonymous", 0);
}

static void run_all(size_t pages)
{
	int fd = make_file(pages);
	char *zeroes = map_anonymous(pages);

	touch_two(map_anonymous(2 * pages), 2 * pages);
	touch_three(map_anonymous(3 * pages), 3 * pages);
	write_shared_file(map(pages * PAGE, MAP_SHARED, fd), pages);
	write_shared_memory(map(pages * PAGE, MAP_SHARED | MAP_ANONYMOUS, -1), pages);
	read_file(map(pages * PAGE, MAP_SHARED, fd), pages);
	copy_private_file(map(pages * PAGE, MAP_PRIVATE, fd), pages);
	look_at_zeroes(zeroes, pages);
	replace_zeroes(zeroes, pages);
	touch_stack(pages);
	fill_by_kernel(map_anonymous(pages), pages, fd);
	run_fork(pages);
	run_huge();
	tell("touch_one", "anonymous", pages * PAGE);
	tell("touch_two", "anonymous", 2 * pages * PAGE);
	tell("touch_three", "anonymous", 3 * pages * PAGE);
	tell("write_shared_file", "file", pages * PAGE);
	tell("write_shared_memory", "file", pages * PAGE);
	tell("read_file", "file", pages * PAGE);
	tell("copy_private_file", "anonymous", pages * PAGE);
	tell("look_at_zeroes", "anonymous", 0);
	tell("replace_zeroes", "anonymous", pages * PAGE);
	tell("touch_stack", "stack", pages * PAGE);
	tell("fill_by_kernel", "anonymous", pages * PAGE);
}

static void run_turns(size_t pages, size_t period)
{
	size_t turns = pages / period;
	char *memory = map_anonymous(turns * period);

	for (size_t i = 0; i < turns; i++) {
		char *turn = memory + i * period * PAGE;

		touch_one(turn, 1);
		touch_two(turn + PAGE, 2);
		touch_three(turn + 3 * PAGE, period - 3);
	}
	tell("touch_one", "anonymous", turns * PAGE);
	tell("touch_two", "anonymous", turns * 2 * PAGE);
	tell("touch_three", "anonymous", turns * (period - 3) * PAGE);
}

/*
 * A page that was shared is copied although its sharer is gone if another CPU has yet to put it on
 * the lists of the kernel's, which holds it.
 */
static void stay_here(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	require(!sched_setaffinity(0, sizeof(here), &here));
}

/* The code of what is called later: its pages are not to be among those that are counted. */
static void warm_up(void)
{
	static char page[PAGE];
	int fd = make_file(1);

	touch_one(page, 0);
	touch_two(page, 0);
	touch_three(page, 0);
	write_shared_file(page, 0);
	write_shared_memory(page, 0);
	read_file(page, 0);
	copy_private_file(page, 0);
	look_at_zeroes(page, 0);
	replace_zeroes(page, 0);
	touch_after_fork(page, 0);
	copy_after_fork(page, 0);
	touch_after_protect(page, 0);
	touch_stack(0);
	fill_by_kernel(page, 1, fd);
	touch_huge(page, 0);
	touch_parts(page, 0);
	look_at_huge_zeroes(page, 0);
	close(fd);
}

int main(int argc, char **argv)
{
	struct rlimit stack = {64ul << 20, 64ul << 20};
	size_t pages, period;

	/* The main thread's stack grows as far as the limit at exec allows. */
	if (!getenv("FAULTS_STACK")) {
		setenv("FAULTS_STACK", "1", 1);
		if (!setrlimit(RLIMIT_STACK, &stack))
			execvp(argv[0], argv);
	}
	stay_here();
	warm_up();
	truth_start(&argc, argv);
	require(argc > 1);
	pages = strtoul(argv[1], NULL, 0);
	period = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	require(pages && (!period || period > 3));
	if (period)
		run_turns(pages, period);
	else
		run_all(pages);
	fflush(stdout);
	truth_wait_line();
	return 0;
}
