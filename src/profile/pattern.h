/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Regular expressions of foreign origin, in the dialect of Go's regexp, which profiles are written
 * for. Time to match is bounded by the length of the expression times that of the text, and memory
 * by the former: regcomp() and regexec() of glibc bound neither.
 *
 * Understood: literals, . [...] [[:class:]] \d \w \s and their complements, \xHH, groups (also
 * (?:...) and (?P<name>...)), | * + ? {n,m} and their lazy forms, ^ $ \A \z. Text is bytes.
 */
#ifndef HEAPTAP_PROFILE_PATTERN_H
#define HEAPTAP_PROFILE_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "util/cleanup.h"

struct pattern;

/* Errors: -EINVAL if it is not valid, not understood, or too large; -ENOMEM. */
int pattern_new(const char *expression, struct pattern **ret);
void pattern_free(struct pattern *pattern);
DEFINE_CLEANUP(pattern, struct pattern *, pattern_free)

/* Is there a match anywhere in the text? Uses memory of the pattern: one call at a time. */
bool pattern_matches(struct pattern *pattern, const char *text, size_t length);

#endif
