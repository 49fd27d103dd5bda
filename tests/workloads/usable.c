/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * `usable`: makes memory usable that is usable in any case, right after a syscall about memory that
 * is not. The heap has not grown by it.
 */
#include <stddef.h>
#include <sys/mman.h>

#define SIZE (1ul << 20)

#define SITE_FN __attribute__((noipa))

SITE_FN static char *map(size_t size, int access)
{
	return mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

SITE_FN static int shrink(char *start)
{
	return mremap(start, 2 * SIZE, SIZE, 0) == MAP_FAILED;
}

SITE_FN static int protect(char *start)
{
	return mprotect(start, SIZE, PROT_READ | PROT_WRITE);
}

int main(void)
{
	char *kept = map(SIZE, PROT_READ | PROT_WRITE), *reserved = map(2 * SIZE, PROT_NONE);

	return kept == MAP_FAILED || reserved == MAP_FAILED || shrink(reserved) || protect(kept);
}
