/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files by names that a foreign file has given. */
#ifndef HEAPTAP_UTIL_REGULAR_H
#define HEAPTAP_UTIL_REGULAR_H

/*
 * Opens a regular file for reading. Nothing else is opened, not even to look: a FIFO would block,
 * a device may act. Returns a descriptor (O_RDONLY | O_CLOEXEC) or a negative errno, -EINVAL for
 * what is no regular file.
 */
int regular_open(const char *path);

#endif
