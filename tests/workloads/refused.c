/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * `refused`: calls that would change mappings and that the kernel refuses, 100 times each. Says
 * what each function has mapped, ever and still; nothing here calls malloc.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE  (1ul << 20)
#define TIMES 100

#define SITE_FN __attribute__((noipa))

SITE_FN static char *reserve(size_t size)
{
	return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

SITE_FN static char *keep(char *start, size_t size)
{
	return mmap(start, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0);
}

/* There is no room behind it, and no leave to move it. */
SITE_FN static int grow(char *start)
{
	return mremap(start, 2 * SIZE, 3 * SIZE, 0) != MAP_FAILED;
}

/* Only a part of a mapping. */
SITE_FN static int grow_part(char *start)
{
	return mremap(start, SIZE, 2 * SIZE, 0) != MAP_FAILED;
}

/* More than there are addresses. */
SITE_FN static int unmap(char *start)
{
	return !munmap(start, 1ul << 47);
}

int main(void)
{
	char *all = reserve(4 * SIZE), *kept, text[256];
	int length;

	if (all == MAP_FAILED)
		return 1;
	kept = keep(all + SIZE, 2 * SIZE);
	if (kept == MAP_FAILED)
		return 1;
	for (int i = 0; i < TIMES; i++)
		if (grow(kept) || grow_part(kept) || unmap(kept))
			return 1;
	length = snprintf(text, sizeof(text),
			  "site=reserve map_objects=1 map_space=%lu mapped_space=%lu\n"
			  "site=keep map_objects=1 map_space=%lu mapped_space=%lu\n",
			  4 * SIZE, 2 * SIZE, 2 * SIZE, 2 * SIZE);
	return write(STDOUT_FILENO, text, length) != length;
}
