/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a session sets for its process: how it uses memory, and how many files it may hold. */
#ifndef HEAPTAP_UTIL_LIMITS_H
#define HEAPTAP_UTIL_LIMITS_H

void limits_set(void);
/* In a child, for the program that it is about to execute. */
void limits_reset(void);

#endif
