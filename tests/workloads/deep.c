/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One block under a stack of `deep [FRAMES]` calls of descend(), 100 by default. */
#include "truth.h"

#define SIZE 4096

SITE(leaf_malloc);
SITE_FN static struct block leaf_malloc(void)
{
	return block_new(&leaf_malloc_site, opaque(malloc(SIZE)), SIZE);
}

SITE_FN static struct block descend(unsigned long levels)
{
	struct block block = levels > 1 ? descend(levels - 1) : leaf_malloc();

	/* Something left to do: not a tail call. */
	block.ptr = opaque(block.ptr);
	return block;
}

int main(int argc, char **argv)
{
	unsigned long levels;

	truth_start(&argc, argv);
	levels = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
	require(descend(levels ? levels : 1).ptr);
	return truth_finish();
}
