/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Allocates at random sites, and frees at once, about 5 GB in sizes below and above 16 MiB, the
 * distance of tcmalloc's countdown: `countdown [SEED]`.
 */
#include "truth.h"

/* tcmalloc counts with the sizes that blocks really have: these are such. */
#define SMALL	  2048
#define LARGE	  (512ul << 10)
#define HUGE	  (40ul << 20)
#define ROUNDS	  4000
#define PER_ROUND 300 /* small ones */

static uint64_t random_state = 1;

/* splitmix64 */
static uint64_t random_next(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

#define DEFINE_SITE(fn, size)                                                                      \
	SITE(fn);                                                                                  \
	SITE_FN static void fn(void)                                                               \
	{                                                                                          \
		struct block block = block_new(&fn##_site, opaque(malloc(size)), size);            \
                                                                                                   \
		block_free(&block);                                                                \
	}

DEFINE_SITE(count_small, SMALL)
DEFINE_SITE(count_large, LARGE)
DEFINE_SITE(count_huge, HUGE)

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	if (argc > 1)
		random_state = strtoul(argv[1], NULL, 10);
	for (int i = 0; i < ROUNDS; i++) {
		for (int n = 0; n < PER_ROUND; n++)
			count_small();
		if (random_next() % 2)
			count_large();
		if (random_next() % 100 == 0)
			count_huge();
	}
	return truth_finish();
}
