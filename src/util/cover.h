/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Overlapping ranges flattened, so that the best one at an address is found by binary search, no
 * matter how many ranges a hostile file lays over each other.
 */
#ifndef HEAPTAP_UTIL_COVER_H
#define HEAPTAP_UTIL_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/cleanup.h"

struct cover;

struct cover_range {
	uint64_t start;
	uint64_t end; /* behind the last address */
};

/* No range covers the address. */
#define COVER_NONE UINT32_MAX

/*
 * Flattens ranges, which must be sorted by start; fewer than 2^32 - 1. better(arg, a, b) orders two
 * ranges by index where they overlap, strictly and totally. Takes O(n log n) time. Returns 0 or
 * -ENOMEM.
 */
int cover_build(const struct cover_range *ranges, size_t count,
		bool (*better)(const void *arg, uint32_t a, uint32_t b), const void *arg,
		struct cover **ret);
void cover_free(struct cover *cover);
DEFINE_CLEANUP(cover, struct cover *, cover_free)

/* The index of the best range over an address, or COVER_NONE. */
uint32_t cover_find(const struct cover *cover, uint64_t address);
size_t cover_bytes(const struct cover *cover);

#endif
