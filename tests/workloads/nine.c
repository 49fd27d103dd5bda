/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scenario of gperftools' manual: four times 1 GiB by create(), 1 GiB by main() and 1 MiB that
 * comes and goes; then main's blocks are freed. At the default intervals this is nine snapshots.
 * No page of the blocks is touched.
 */
#include "truth.h"

#define GIB    (1ul << 30)
#define MIB    (1ul << 20)
#define ROUNDS 4

SITE(create);
SITE(main);

SITE_FN static struct block create(size_t size)
{
	return block_new(&create_site, opaque(malloc(size)), size);
}

SITE_FN static void create_and_free(size_t size)
{
	struct block block = create(size);

	require(block.ptr);
	block_free(&block);
}

int main(int argc, char **argv)
{
	struct block kept[ROUNDS];

	truth_start(&argc, argv);
	for (int i = 0; i < ROUNDS; i++) {
		require(create(GIB).ptr);
		kept[i] = block_new(&main_site, opaque(malloc(GIB)), GIB);
		require(kept[i].ptr);
		create_and_free(MIB);
	}
	for (int i = 0; i < ROUNDS; i++)
		block_free(&kept[i]);
	return truth_finish();
}
