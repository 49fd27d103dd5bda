/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files below a root folder, such as a target's /proc/PID/root. Symbolic links are followed as if
 * the folder were "/": what a container's files point to stays inside it.
 */
#ifndef HEAPTAP_UTIL_ROOT_H
#define HEAPTAP_UTIL_ROOT_H

/*
 * Opens a folder as a root. Returns a descriptor (O_PATH | O_CLOEXEC), which keeps the folder after
 * its process is gone, or a negative errno.
 */
int root_open(const char *path);

/*
 * Opens a file below a root for reading. path may begin with "/". Neither a device nor a pipe
 * blocks the open; the caller checks what it got. Returns a descriptor (O_RDONLY | O_CLOEXEC) or a
 * negative errno.
 */
int root_open_file(int root_fd, const char *path);

#endif
