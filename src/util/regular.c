/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "util/cleanup.h"

int regular_open(const char *path)
{
	char link[64];
	struct stat st;
	int fd _cleanup_close_ = open(path, O_PATH | O_CLOEXEC), ret;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ret = open(link, O_RDONLY | O_CLOEXEC);
	return ret < 0 ? -errno : ret;
}
