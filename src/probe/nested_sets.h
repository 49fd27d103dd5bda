/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Numbers for images with an allocator, by which the kernel side knows their nested calls. Where
 * one image's calls return to the same offsets as another's, both have one number: a machine may
 * have a hundred copies of a C library.
 */
#ifndef HEAPTAP_PROBE_NESTED_SETS_H
#define HEAPTAP_PROBE_NESTED_SETS_H

#include <stddef.h>
#include <stdint.h>

struct nested_set;

/* Begins as zeroes. */
struct nested_sets {
	struct nested_set *entries; /* the index is the number */
	size_t count;
};

/*
 * The number of the image whose nested calls return to these file offsets, in any order. Errors:
 * -ENOMEM; -E2BIG if PROBE_MAX_NESTED_SETS are given.
 */
int nested_sets_number(struct nested_sets *sets, const uint32_t *offsets, size_t count,
		       uint8_t *ret);
void nested_sets_fini(struct nested_sets *sets);

#endif
