/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * `load PROCESSES STACKS RATE`: processes that each allocate RATE times per second under one of
 * STACKS call stacks and hold the last HELD blocks, of 32 KiB on average. With a RATE of 0 each
 * allocates 2 MiB under every stack, once, and holds it. Prints `ready` when all of them have
 * begun, or are through; the end of stdin ends them.
 */
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HELD  64
#define LARGE (2ul << 20) /* so that it is picked almost for sure */

static void *opaque(void *ptr)
{
	__asm__ volatile("" : "+r"(ptr) : : "memory");
	return ptr;
}

/* The path through the two tells the bits of a number: as many stacks as there are numbers. */
static void *one(unsigned long path, size_t size);

__attribute__((noipa)) static void *zero(unsigned long path, size_t size)
{
	if (path == 1)
		return opaque(malloc(size));
	return opaque(path & 1 ? one(path >> 1, size) : zero(path >> 1, size));
}

__attribute__((noipa)) static void *one(unsigned long path, size_t size)
{
	if (path == 1)
		return opaque(malloc(size));
	return opaque(path & 1 ? one(path >> 1, size) : zero(path >> 1, size));
}

static void run(unsigned long stacks, unsigned long rate, int input, int output)
{
	const int pause_ms = rate ? (int)(1000 / rate) : -1;
	struct pollfd ended = {.fd = input, .events = POLLIN};
	void *held[HELD] = {};
	char byte = '\n';

	srandom(getpid());
	for (unsigned long i = 0; !rate && i < stacks; i++)
		zero(stacks + i, LARGE);
	if (write(output, &byte, 1) != 1)
		exit(1);
	for (unsigned long i = 0; !poll(&ended, 1, pause_ms); i++) {
		free(held[i % HELD]);
		held[i % HELD] = zero(stacks + random() % stacks, random() % (64 << 10));
	}
}

int main(int argc, char **argv)
{
	unsigned long processes, stacks, rate;
	int input[2], output[2];
	char byte;

	if (argc != 4 || pipe(input) || pipe(output))
		return 2;
	processes = strtoul(argv[1], NULL, 10);
	stacks = strtoul(argv[2], NULL, 10);
	rate = strtoul(argv[3], NULL, 10);
	for (unsigned long i = 0; i < processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (!pid) {
			close(input[1]);
			run(stacks, rate, input[0], output[1]);
			return 0;
		}
	}
	for (unsigned long i = 0; i < processes; i++)
		if (read(output[0], &byte, 1) != 1)
			return 1;
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) == 1)
		;
	close(input[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}
