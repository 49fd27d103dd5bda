/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers as people write them. */
#ifndef HEAPTAP_UTIL_SIZE_H
#define HEAPTAP_UTIL_SIZE_H

#include <stdint.h>

/*
 * Parses a count of bytes: digits and, optionally, one of K, M, G (powers of 1024, either case).
 * Returns 0, -EINVAL for anything else (signs, blanks, fractions included) or -ERANGE.
 */
int size_parse(const char *text, uint64_t *ret);

/* Parses a plain decimal number up to max. Returns 0, -EINVAL or -ERANGE. */
int number_parse(const char *text, uint64_t max, uint64_t *ret);

#endif
