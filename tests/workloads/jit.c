/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A compiler that runs what it has compiled: `jit [CHILDREN]` starts so many children that do
 * nothing, and one more, which prints `jit PID`. For each line on stdin that one makes a function
 * that allocates 1000 bytes, gives it the line as its name in /tmp/perf-PID.map, calls it once and
 * answers `done NAME`. The end of stdin ends all.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "truth.h"

#define SIZE	      1000
#define FUNCTION_SIZE 64
#define CODE_SIZE     65536

SITE(jit_malloc);
SITE_FN static void jit_malloc(size_t size)
{
	struct block block = block_new(&jit_malloc_site, opaque(malloc(size)), size);

	require(block.ptr);
}

/* push %rbp; mov %rsp,%rbp; mov $jit_malloc,%rax; mov $SIZE,%edi; call *%rax; pop %rbp; ret */
static size_t compile(unsigned char *code)
{
	static const unsigned char begin[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8};
	static const unsigned char end[] = {0xff, 0xd0, 0x5d, 0xc3};
	void (*function)(size_t size) = jit_malloc;
	unsigned char *at = code;
	unsigned int size = SIZE;

	at = (unsigned char *)memcpy(at, begin, sizeof(begin)) + sizeof(begin);
	at = (unsigned char *)memcpy(at, &function, sizeof(function)) + sizeof(function);
	*at++ = 0xbf;
	at = (unsigned char *)memcpy(at, &size, sizeof(size)) + sizeof(size);
	at = (unsigned char *)memcpy(at, end, sizeof(end)) + sizeof(end);
	return at - code;
}

static void run(void)
{
	unsigned char *code = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64], line[64];
	FILE *map;

	require(code != MAP_FAILED);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	require(map);
	printf("jit %d\n", getpid());
	fflush(stdout);
	for (size_t used = 0; fgets(line, sizeof(line), stdin) && used < CODE_SIZE;
	     used += FUNCTION_SIZE) {
		size_t size = compile(code + used);

		fprintf(map, "%lx %zx %s", (unsigned long)(code + used), size, line);
		fflush(map);
		((void (*)(void))(code + used))();
		printf("done %s", line);
		fflush(stdout);
	}
	fclose(map);
	unlink(path);
	exit(0);
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	pid_t pids[count + 1];

	for (size_t i = 0; i <= count; i++) {
		pids[i] = fork();
		require(pids[i] >= 0);
		if (!pids[i] && i == count)
			run();
		while (!pids[i])
			pause();
	}
	require(waitpid(pids[count], NULL, 0) == pids[count]);
	for (size_t i = 0; i < count; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return 0;
}
