/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sizes are not asked for beforehand: files of /proc and cgroup file systems show none. */
#include "util/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/regular.h"

static int read_all(int fd, size_t max_bytes, char **ret, size_t *ret_bytes)
{
	char *text _cleanup_free_ = NULL;
	size_t size = 0, capacity = 0;

	for (;;) {
		ssize_t n;

		if (size + 1 >= capacity) {
			char *larger;

			capacity = capacity ? capacity * 2 : 4096;
			larger = realloc(text, capacity);
			if (!larger)
				return -ENOMEM;
			text = larger;
		}
		n = read(fd, text + size, capacity - 1 - size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		size += n;
		if (size > max_bytes)
			return -EFBIG;
	}
	text[size] = 0;
	if (ret_bytes)
		*ret_bytes = size;
	*ret = take_ptr(text);
	return 0;
}

int text_file_read(const char *path, size_t max_bytes, char **ret, size_t *ret_bytes)
{
	int fd _cleanup_close_ = regular_open(path);

	return fd < 0 ? fd : read_all(fd, max_bytes, ret, ret_bytes);
}

int text_file_read_at(int folder_fd, const char *name, size_t max_bytes, char **ret,
		      size_t *ret_bytes)
{
	int fd _cleanup_close_ = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -errno : read_all(fd, max_bytes, ret, ret_bytes);
}
