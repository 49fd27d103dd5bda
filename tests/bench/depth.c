/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * depth FRAMES COUNT: prints `ready`, waits for a line, allocates COUNT times with FRAMES frames of
 * its own on the stack, prints `done`, and waits for another line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static int descend(int frames, long count)
{
	volatile int below = 0;

	if (frames > 1) {
		below = descend(frames - 1, count);
	} else {
		for (long i = 0; i < count; i++) {
			void *block = malloc(64);

			__asm__ volatile("" : : "r"(block) : "memory");
			free(block);
		}
	}
	return below + 1;
}

static void say_and_wait(const char *word)
{
	char line;

	if (write(1, word, 6) != 6)
		_exit(1);
	while (read(0, &line, 1) == 1 && line != '\n')
		;
}

int main(int argc, char **argv)
{
	int frames = argc > 2 ? atoi(argv[1]) : 1;
	int depth;

	say_and_wait("ready\n");
	depth = descend(frames, argc > 2 ? atol(argv[2]) : 1);
	say_and_wait("done.\n");
	return depth == frames ? 0 : 1;
}
