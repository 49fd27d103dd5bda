/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Regular expressions of foreign origin, such as a profile's drop_frames. They are written for Go's
 * regexp, whose dialect PCRE2 understands; unlike there, matching has to be bounded.
 */
#ifndef HEAPTAP_PROFILE_PATTERN_H
#define HEAPTAP_PROFILE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "util/cleanup.h"

struct pattern;

/* Errors: -EINVAL if it is not valid or too large; -ENOMEM. */
int pattern_new(const char *expression, struct pattern **ret);
void pattern_free(struct pattern *pattern);
DEFINE_CLEANUP(pattern, struct pattern *, pattern_free)

/*
 * Is there a match anywhere in the text? A search that takes more than a bounded number of steps
 * finds none; after a few such, nothing is searched any more. Uses memory of the pattern: one call
 * at a time.
 */
bool pattern_matches(struct pattern *pattern, const char *text, size_t length);

#endif
