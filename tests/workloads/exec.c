/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Allocates, then executes another program in its place: `exec [PROGRAM ARGS]`, or /bin/true. */
#include "truth.h"

#define SIZE (3ul << 20)

SITE(before_exec);
SITE_FN static struct block before_exec(size_t size)
{
	return block_new(&before_exec_site, opaque(malloc(size)), size);
}

int main(int argc, char **argv)
{
	static char *const default_argv[] = {"/bin/true", NULL};
	char *const *next;

	truth_start(&argc, argv);
	require(before_exec(SIZE).ptr);
	truth_finish();
	next = argc > 1 ? &argv[1] : default_argv;
	execv(next[0], next);
	perror(next[0]);
	return 127;
}
