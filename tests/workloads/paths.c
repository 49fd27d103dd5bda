/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Many call stacks: `paths [--wait] [COUNT]` allocates COUNT times, each with a stack of its own.
 */
#include "truth.h"

#define LEVELS 16

SITE(path_block);
SITE_FN static void path_block(void)
{
	block_new(&path_block_site, opaque(malloc(16)), 16);
}

/* Each bit of the path is one of two places that call. */
SITE_FN static void descend(size_t path, int level)
{
	if (!level) {
		path_block();
	} else if (path & 1) {
		descend(path >> 1, level - 1);
		__asm__ volatile("# one");
	} else {
		descend(path >> 1, level - 1);
		__asm__ volatile("# the other");
	}
}

int main(int argc, char **argv)
{
	size_t count;

	truth_start(&argc, argv);
	count = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
	require(count <= 1ul << LEVELS);
	for (size_t i = 0; i < count; i++)
		descend(i, LEVELS);
	return truth_finish();
}
