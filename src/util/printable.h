/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names that others have chosen (of processes, cgroups, functions) as text that harms nobody. */
#ifndef HEAPTAP_UTIL_PRINTABLE_H
#define HEAPTAP_UTIL_PRINTABLE_H

#include <stddef.h>

/* Each byte that is not part of valid UTF-8 becomes a '?'. */
void utf8_repair(char *text, size_t size);

/* The same, and each byte of a control character, as a terminal would obey them. */
void printable(char *text);

#endif
