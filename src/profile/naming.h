/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names and lines for a profile that was read: a copy of it with what images say added. */
#ifndef HEAPTAP_PROFILE_NAMING_H
#define HEAPTAP_PROFILE_NAMING_H

#include "elf/image.h"
#include "profile/profile.h"
#include "symbolize/symbolizer.h"

/* Of the locations in one mapping. */
struct naming_counts {
	size_t locations;
	size_t named_before;
	size_t lines_before;
	size_t named;
	size_t lines;
};

/*
 * Copies a profile. images and counts have an entry per mapping; where the image is not NULL, its
 * locations are looked up. A location is changed only where that tells more than before: a name
 * instead of none, a line instead of a name. Returns 0 or -ENOMEM.
 */
int naming_apply(const struct profile *profile, struct image *const *images,
		 struct symbolizer *symbolizer, struct naming_counts *counts, struct profile **ret);

#endif
