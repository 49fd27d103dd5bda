/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * `grow [--thread] [--free]`: three functions that make the heap grow. Each says by how much the
 * data segment of the process, VmData, has grown meanwhile, in bytes; with --free all is freed at
 * the end. With --thread it is another thread's arena.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SITE_FN __attribute__((noipa))

#define MAX_BLOCKS 200000

static void *blocks[MAX_BLOCKS];
static size_t count;
static bool frees;

/* In bytes. Allocates nothing. */
static unsigned long data_bytes(void)
{
	static char text[8192];
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t got = read(fd, text, sizeof(text) - 1);
	const char *at;

	close(fd);
	text[got > 0 ? got : 0] = 0;
	at = strstr(text, "VmData:");
	return at ? strtoul(at + 7, NULL, 10) << 10 : 0;
}

static void report(const char *site, unsigned long before)
{
	char line[128];
	int length =
		snprintf(line, sizeof(line), "site=%s grown=%lu\n", site, data_bytes() - before);

	if (write(STDOUT_FILENO, line, length) != length)
		_exit(1);
}

#define GROWER(name, number, size)                                                                 \
	SITE_FN static void name(void)                                                             \
	{                                                                                          \
		unsigned long before = data_bytes();                                               \
                                                                                                   \
		for (size_t i = 0; i < (number); i++) {                                            \
			blocks[count] = malloc(size);                                              \
			__asm__ volatile("" : "+m"(blocks[count++]) : : "memory");                 \
		}                                                                                  \
		report(#name, before);                                                             \
	}

GROWER(grow_small, 60000, 500)
GROWER(grow_middle, 3000, 9000)
GROWER(grow_large, 20, 3000000)

static void *run(void *arg)
{
	grow_small();
	grow_middle();
	grow_large();
	for (size_t i = 0; frees && i < count; i++)
		free(blocks[i]);
	return arg;
}

int main(int argc, char **argv)
{
	bool thread = false;
	pthread_t id;

	for (int i = 1; i < argc; i++) {
		thread |= !strcmp(argv[i], "--thread");
		frees |= !strcmp(argv[i], "--free");
	}
	if (!thread)
		run(NULL);
	else if (pthread_create(&id, NULL, run, NULL) || pthread_join(id, NULL))
		return 1;
	return 0;
}
