/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Small text files, of /proc and of others, read as a whole. */
#ifndef HEAPTAP_UTIL_TEXT_FILE_H
#define HEAPTAP_UTIL_TEXT_FILE_H

#include <stddef.h>

/*
 * Reads a regular file of at most max_bytes; the caller frees the text, which a NUL ends.
 * *ret_bytes, if ret_bytes is not NULL, is its length without that NUL: a larger number than
 * strlen() shows a file that is no text. Errors: -errno of the open or read, -EINVAL for what is
 * no regular file, -EFBIG, -ENOMEM.
 */
int text_file_read(const char *path, size_t max_bytes, char **ret, size_t *ret_bytes);

/* The same for a file in an open folder. */
int text_file_read_at(int folder_fd, const char *name, size_t max_bytes, char **ret,
		      size_t *ret_bytes);

#endif
