/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Profiles hold UTF-8; names come from anywhere, and the kernel cuts them between bytes. */
#ifndef HEAPTAP_UTIL_UTF8_H
#define HEAPTAP_UTIL_UTF8_H

/* Puts a question mark for every byte that is part of no character. */
void utf8_clean(char *text);

#endif
