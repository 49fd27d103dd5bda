/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process that allocates only when told to: `idle [BYTES]`, 1 MiB by default. It allocates once,
 * prints `idle PID` and then does as each line on stdin says: `a BYTES` allocates, `x BYTES` asks
 * for what cannot be had, `f` frees the last block, each answered by `done`; the end of stdin ends
 * it.
 */
#include "truth.h"

#define MAX_BLOCKS 64

SITE(idle_malloc);
SITE_FN static struct block idle_malloc(size_t size)
{
	return block_new(&idle_malloc_site, opaque(malloc(size)), size);
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

int main(int argc, char **argv)
{
	struct block blocks[MAX_BLOCKS];
	unsigned int count = 0;
	char line[64];

	truth_start(&argc, argv);
	blocks[count++] = idle_malloc(argc > 1 ? strtoul(argv[1], NULL, 10) : 1 << 20);
	printf("idle %d\n", getpid());
	fflush(stdout);
	while (read_line(line, sizeof(line))) {
		if (line[0] == 'a' && count < MAX_BLOCKS) {
			blocks[count] = idle_malloc(strtoul(line + 1, NULL, 10));
			require(blocks[count++].ptr);
		} else if (line[0] == 'x') {
			require(!idle_malloc(strtoul(line + 1, NULL, 10)).ptr);
		} else if (line[0] == 'f' && count > 0) {
			block_free(&blocks[--count]);
		}
		printf("done\n");
		fflush(stdout);
	}
	truth_print();
	return 0;
}
