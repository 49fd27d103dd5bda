/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The instruction of a function that its probe sits on. */
#ifndef HEAPTAP_PROBE_PLACEMENT_H
#define HEAPTAP_PROBE_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "probe/catalog.h"

struct placement {
	uint32_t offset; /* from the function's start */
	/* Where the arguments are at that point; 0 for those the function does not have. */
	uint8_t size_reg;
	uint8_t aux_reg;
	uint8_t ptr_reg;
	/*
	 * Why it is an instruction that the kernel single-steps: the plain entry, or the first one
	 * that it takes a probe at. NULL if the kernel emulates the point.
	 */
	const char *why_entry;
};

/*
 * Chooses the point for a function of the catalog whose code is at `code`. size is that of the
 * whole function; 0 if it is not known, which always gives the entry. Pure: cannot fail.
 */
struct placement placement_choose(const uint8_t *code, size_t size,
				  const struct catalog_function *function);

#endif
