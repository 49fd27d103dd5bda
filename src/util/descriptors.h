/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many files may be open: each image, and each link, is one. */
#ifndef HEAPTAP_UTIL_DESCRIPTORS_H
#define HEAPTAP_UTIL_DESCRIPTORS_H

/* As many as the hard limit allows. */
void descriptors_raise(void);

/* As before: for a program that is executed, which may rely on it (select()). */
void descriptors_restore(void);

#endif
