/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A fault inside glibc's realloc, at will: where the page with the header of a mapped block cannot
 * be read, it faults before it has changed anything or taken a lock.
 */
#ifndef FAULT_H
#define FAULT_H

#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>

#include "truth.h"

#define MIB  (1ul << 20)
#define PAGE 4096ul

/* From here on, blocks of a MiB and more are mapped; on_fault runs inside realloc. */
static inline void fault_start(void (*on_fault)(int))
{
	mallopt(M_MMAP_THRESHOLD, MIB);
	signal(SIGSEGV, on_fault);
}

static inline void protect_header(const struct block *block, int protection)
{
	uintptr_t header = (uintptr_t)block->ptr - 2 * sizeof(size_t);

	require(header % PAGE == 0);
	require(mprotect((void *)header, PAGE, protection) == 0);
}

#endif
