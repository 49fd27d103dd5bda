/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a session sets for its process: how it uses memory, how many files it may hold, and that it
 * does not wait long for a CPU.
 */
#ifndef HEAPTAP_UTIL_LIMITS_H
#define HEAPTAP_UTIL_LIMITS_H

void limits_set(void);
/* In a child, for the program that it is about to execute. */
void limits_reset(void);
/* For the calling thread: it has time. */
void limits_background(void);

#endif
