/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory that is given back all at once. Where the whole machine is profiled, each call of malloc
 * is a trap for us, too: what is made by the ten thousand comes from here.
 */
#ifndef HEAPTAP_UTIL_ARENA_H
#define HEAPTAP_UTIL_ARENA_H

#include <stddef.h>

struct arena_block;

/* All zero is an empty one. */
struct arena {
	struct arena_block *blocks; /* the one in use first */
};

void arena_fini(struct arena *arena);

/* Aligned for any type, not cleared. NULL if memory ran out. */
void *arena_alloc(struct arena *arena, size_t size);

#endif
