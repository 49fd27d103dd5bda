/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loads libraries with allocators of their own when told to. Each line on stdin is a command, with
 * a library's number N, 0 or 1, and is answered by a line that begins with its first word:
 *   open N PATH       loads it; prints CLOCK_MONOTONIC in ns, before and after
 *   memfd N PATH      loads a copy of it that has no path
 *   use N COUNT       so many calls of malloc, calloc and realloc each, of which half are freed
 *   close N           frees what is left and unloads it
 *   flicker N PATH COUNT   loads and unloads it so many times
 *   leave N PATH      loads it, allocates and exits at once
 *   fork N PATH COUNT      so many children
 *   load N COUNT           each of them loads PATH.I, I being its number, from 0, or else PATH
 * The end of stdin, or `end`, ends it with its truth.
 */
#include "truth.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_BLOCKS 4096

struct library {
	void *handle;
	void *(*malloc)(size_t size);
	void *(*calloc)(size_t count, size_t size);
	void *(*realloc)(void *old, size_t size);
	void (*free)(void *block);
	struct block blocks[MAX_BLOCKS];
	size_t count;
};

static struct library libraries[2];
/* Of the children: its end is when they load; and what they have loaded is told. */
static int gate[2], loaded[2];

/* A function per library and call, which stands in its stacks. */
#define SITES(name)                                                                                \
	SITE(name##_malloc);                                                                       \
	SITE_FN static struct block name##_malloc(struct library *library, size_t size)            \
	{                                                                                          \
		return block_new(&name##_malloc_site, opaque(library->malloc(size)), size);        \
	}                                                                                          \
	SITE(name##_calloc);                                                                       \
	SITE_FN static struct block name##_calloc(struct library *library, size_t size)            \
	{                                                                                          \
		return block_new(&name##_calloc_site, opaque(library->calloc(3, size)), 3 * size); \
	}                                                                                          \
	SITE(name##_realloc);                                                                      \
	SITE_FN static struct block name##_realloc(struct library *library, struct block *old,     \
						   size_t size)                                    \
	{                                                                                          \
		return block_moved(old, &name##_realloc_site,                                      \
				   opaque(library->realloc(old->ptr, size)), size);                \
	}

SITES(first)
SITES(second)

static void library_open(struct library *library, const char *path)
{
	library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!library->handle) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(3);
	}
	library->malloc = dlsym(library->handle, "malloc");
	library->calloc = dlsym(library->handle, "calloc");
	library->realloc = dlsym(library->handle, "realloc");
	library->free = dlsym(library->handle, "free");
}

static void library_open_copy(struct library *library, const char *path)
{
	int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("late", MFD_CLOEXEC);
	char name[64];
	struct stat st;

	require(from >= 0 && to >= 0 && !fstat(from, &st));
	require(sendfile(to, from, NULL, st.st_size) == st.st_size);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", to);
	library_open(library, name);
	close(from);
	close(to);
}

static void library_use(struct library *library, size_t count)
{
	bool first = library == &libraries[0];

	for (size_t i = 0; i < count; i++) {
		struct block old;

		require(library->count + 2 <= MAX_BLOCKS);
		library->blocks[library->count] =
			first ? first_malloc(library, 100 + i) : second_malloc(library, 100 + i);
		require(library->blocks[library->count++].ptr);
		old = first ? first_calloc(library, 10 + i) : second_calloc(library, 10 + i);
		require(old.ptr);
		library->blocks[library->count] = first ? first_realloc(library, &old, 500 + i)
							: second_realloc(library, &old, 500 + i);
		require(library->blocks[library->count++].ptr);
	}
	for (size_t i = 0; i < count; i++)
		library->free(block_take(&library->blocks[--library->count]));
}

static void library_close(struct library *library)
{
	while (library->count)
		library->free(block_take(&library->blocks[--library->count]));
	require(!dlclose(library->handle));
}

static void fork_loaders(struct library *library, const char *path, unsigned int count)
{
	require(!pipe2(gate, O_CLOEXEC) && !pipe2(loaded, O_CLOEXEC));
	for (unsigned int i = 0; i < count; i++) {
		pid_t pid = fork();
		char name[300], byte = 0;

		require(pid >= 0);
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(gate[1]);
		snprintf(name, sizeof(name), "%s.%u", path, i);
		require(read(gate[0], &byte, 1) == 0);
		library_open(library, access(name, F_OK) ? path : name);
		require(write(loaded[1], &byte, 1) == 1);
		for (;;)
			pause();
	}
}

static void let_load(unsigned int count)
{
	char byte;

	close(gate[1]);
	while (count--)
		require(read(loaded[0], &byte, 1) == 1);
}

/* stdio's own buffer would be an allocation. */
static bool read_line(char *line, size_t size)
{
	size_t used = 0;

	while (used + 1 < size && read(STDIN_FILENO, &line[used], 1) == 1) {
		if (line[used] == '\n') {
			line[used] = '\0';
			return true;
		}
		used++;
	}
	return false;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int main(int argc, char **argv)
{
	char line[512], command[16], path[256] = "";
	unsigned int number, count;

	truth_start(&argc, argv);
	printf("late %d\n", getpid());
	fflush(stdout);
	while (read_line(line, sizeof(line)) && sscanf(line, "%15s %u", command, &number) == 2) {
		struct library *library = &libraries[number % 2];
		uint64_t start_ns = now_ns();

		count = 0;
		if (sscanf(line, "%*s %*u %255s %u", path, &count) < 2)
			count = strtoul(path, NULL, 10);
		if (!strcmp(command, "open"))
			library_open(library, path);
		else if (!strcmp(command, "memfd"))
			library_open_copy(library, path);
		else if (!strcmp(command, "use"))
			library_use(library, count);
		else if (!strcmp(command, "close"))
			library_close(library);
		else if (!strcmp(command, "fork"))
			fork_loaders(library, path, count);
		else if (!strcmp(command, "load"))
			let_load(count);
		for (unsigned int i = 0; !strcmp(command, "flicker") && i < count; i++) {
			library_open(library, path);
			library_close(library);
		}
		if (!strcmp(command, "leave")) {
			library_open(library, path);
			_exit(library->malloc(1000) ? 0 : 3);
		}
		printf("%s %u %" PRIu64 " %" PRIu64 "\n", command, number, start_ns, now_ns());
		fflush(stdout);
	}
	truth_print();
	return 0;
}
