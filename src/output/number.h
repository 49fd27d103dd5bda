/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Values with their units, in the forms of pprof (its internal/measurement package): 1.50MB, 12kB.
 * Bytes grow by 1024, times from ns to hrs; any other unit is not scaled.
 */
#ifndef HEAPTAP_OUTPUT_NUMBER_H
#define HEAPTAP_OUTPUT_NUMBER_H

#include <stdint.h>

#define NUMBER_SIZE 64

/* The name of the largest unit in which value is at least 1; the unit itself if it has no scale. */
const char *number_auto_unit(uint64_t value, const char *unit);

/* Writes value, counted in `unit`, as a number of `to_unit`, whose name follows it. */
void number_format(char text[NUMBER_SIZE], int64_t value, const char *unit, const char *to_unit);

/*
 * The form of a total: "2048.0 MB", or a plain number where the unit is no size. The next unit is
 * taken from 10000 on, so that sizes read as in the messages of a session.
 */
void number_format_total(char text[NUMBER_SIZE], int64_t value, const char *unit);

/* Share of a total, six characters wide: " 1.25%". Never negative. */
void number_format_percent(char text[NUMBER_SIZE], int64_t value, uint64_t total);

#endif
