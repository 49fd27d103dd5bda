/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Three sites with 10, 30 and 60 % of the bytes: `sites [SEED]`. Sizes run from 8 B to 4 MiB, and
 * a part is freed again. Besides the truth it prints how often each size occurred, from which the
 * variance of an estimate follows: `block site=FUNCTION size=N alloc_objects=N inuse_objects=N`.
 * With WARM_UP 17 MiB were allocated before: tcmalloc samples nothing of a program's first 16.
 */
#include "truth.h"

#define MIB (1ul << 20)

/* Sizes are 8 per power of two, so that there are few different ones. */
#define STEPS	     8
#define SMALLEST_LOG 3
#define LARGEST_LOG  22
#define SIZES	     ((LARGEST_LOG - SMALLEST_LOG) * STEPS + 1)

#define SMALL_CALLS 60000
#define TOTAL	    (400 * MIB)
#define SLOTS	    (SMALL_CALLS + 10000)

struct tally {
	unsigned long alloc_objects, inuse_objects;
};

static uint64_t random_state;

/* splitmix64 */
static uint64_t random_next(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static size_t size_of(unsigned int index)
{
	size_t base = 1ul << (SMALLEST_LOG + index / STEPS);

	return base + base * (index % STEPS) / STEPS;
}

#define DEFINE_SITE(fn)                                                                            \
	SITE(fn);                                                                                  \
	SITE_FN static struct block fn(size_t size)                                                \
	{                                                                                          \
		return block_new(&fn##_site, opaque(malloc(size)), size);                          \
	}

DEFINE_SITE(site_tenth)
DEFINE_SITE(site_third)
DEFINE_SITE(site_most)

static struct {
	struct block (*fn)(size_t);
	struct site *site;
	unsigned long share;
	struct tally tallies[SIZES];
} sites[] = {
	{.fn = site_tenth, .site = &site_tenth_site, .share = 10},
	{.fn = site_third, .site = &site_third_site, .share = 30},
	{.fn = site_most, .site = &site_most_site, .share = 60},
};

#define SITE_COUNT (sizeof(sites) / sizeof(*sites))

static struct {
	struct block block;
	unsigned int site, size;
} slots[SLOTS];

/* The site that is furthest behind its share of the bytes. */
static unsigned int site_behind(void)
{
	unsigned int behind = 0;

	for (unsigned int i = 1; i < SITE_COUNT; i++)
		if (sites[i].site->alloc_space * sites[behind].share <
		    sites[behind].site->alloc_space * sites[i].share)
			behind = i;
	return behind;
}

static void allocate(unsigned int slot, unsigned int site, unsigned int size)
{
	slots[slot].block = sites[site].fn(size_of(size));
	slots[slot].site = site;
	slots[slot].size = size;
	require(slots[slot].block.ptr);
	sites[site].tallies[size].alloc_objects++;
	sites[site].tallies[size].inuse_objects++;
}

/* Six in ten, at random. */
static void release_some(unsigned int first, unsigned int end)
{
	for (unsigned int i = first; i < end; i++) {
		if (random_next() % 10 >= 6)
			continue;
		sites[slots[i].site].tallies[slots[i].size].inuse_objects--;
		block_free(&slots[i].block);
	}
}

int main(int argc, char **argv)
{
	unsigned int used = 0;
	size_t bytes = 0;

#ifdef WARM_UP
	for (int i = 0; i < 17; i++)
		free(opaque(malloc(MIB)));
#endif
	truth_start(&argc, argv);
	random_state = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	/* Small blocks are dealt out evenly, large ones bring the bytes to their shares. */
	while (used < SMALL_CALLS) {
		allocate(used, used % SITE_COUNT, random_next() % (9 * STEPS + 1));
		bytes += slots[used++].block.size;
	}
	release_some(0, used);
	while (bytes < TOTAL && used < SLOTS) {
		unsigned int first = 9 * STEPS;

		allocate(used, site_behind(), first + random_next() % (SIZES - first));
		bytes += slots[used++].block.size;
	}
	release_some(SMALL_CALLS, used);
	for (unsigned int i = 0; i < SITE_COUNT; i++)
		for (unsigned int size = 0; size < SIZES; size++)
			if (sites[i].tallies[size].alloc_objects)
				printf("block site=%s size=%zu alloc_objects=%lu "
				       "inuse_objects=%lu\n",
				       sites[i].site->name, size_of(size),
				       sites[i].tallies[size].alloc_objects,
				       sites[i].tallies[size].inuse_objects);
	return truth_finish();
}
