/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Characters that the kernel writes as numbers. */
#ifndef HEAPTAP_UTIL_UNESCAPE_H
#define HEAPTAP_UTIL_UNESCAPE_H

/* Replaces \012 and the like, as /proc's lists of mappings and mounts have them, in place. */
void unescape_octal(char *text);

#endif
