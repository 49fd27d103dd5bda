/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The probe points of one image: the allocation functions of the catalog that it defines, each
 * once, the instruction chosen for each, and how they call one another.
 */
#ifndef HEAPTAP_PROBE_POINTS_H
#define HEAPTAP_PROBE_POINTS_H

#include <stddef.h>

#include "elf/image.h"
#include "elf/symtab.h"
#include "heaptap/probe.h"

struct probe_point {
	const char *name; /* of the catalog */
	struct probe_spec spec;
	uint64_t entry_offset; /* file offset of the function */
	const char *why_entry; /* why spec.offset is the plain entry; NULL: it is a cheaper one */
};

struct probe_points {
	struct probe_point *entries;
	size_t count;
	struct nested_calls nested;
};

/*
 * Finds the points of an image; spec.image is left 0 for the caller. An image is taken only if it
 * defines both malloc and free: count is 0 otherwise. Errors: -ENOMEM, -E2BIG if a probe point lies
 * past 4 GiB in the file or there are more than PROBE_MAX_NESTED_CALLS nested calls.
 */
int probe_points_find(struct image *image, const struct symtab *symtab, struct probe_points **ret);
void probe_points_free(struct probe_points *points);
DEFINE_CLEANUP(probe_points, struct probe_points *, probe_points_free)

#endif
