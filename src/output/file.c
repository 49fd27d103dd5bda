/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "output/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"

/* Hidden, in the folder that rename() needs, and short, whatever the name is. */
static char *temporary_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t folder_length = slash ? slash + 1 - path : 0;
	char *temporary;

	if (asprintf(&temporary, "%.*s.heaptap.tmp.%d", (int)folder_length, path, (int)getpid()) <
	    0)
		return NULL;
	return temporary;
}

/* Never follows a link or opens a file that someone else put there. */
static int create(const char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = open(path, flags, 0666);

	if (fd < 0 && errno == EEXIST) {
		/* Left by a killed process that had our PID. */
		unlink(path);
		fd = open(path, flags, 0666);
	}
	return fd < 0 ? -errno : fd;
}

static int write_and_close(const struct profile *profile, const struct output_format *format,
			   int fd_owned)
{
	int fd _cleanup_close_ = fd_owned;
	struct output_options options = {0};
	FILE *file;
	int err;

	file = fdopen(fd, "w");
	if (!file)
		return -errno;
	take_fd(fd);
	/* Only the forms that show one sample type ask for it. */
	profile_find_sample_type(profile, NULL, &options.sample_index);
	err = format->write(profile, &options, file);
	if (!err && fflush(file) != 0)
		err = -errno;
	/* Network file systems report a full disk here. */
	if (fclose(file) != 0 && !err)
		err = -errno;
	return err;
}

int output_write_file(const struct profile *profile, const struct output_format *format,
		      const char *path)
{
	char *temporary _cleanup_free_ = temporary_path(path);
	int err, fd;

	if (!temporary)
		return -ENOMEM;
	fd = create(temporary);
	if (fd < 0)
		return fd;
	err = write_and_close(profile, format, fd);
	if (!err && rename(temporary, path) < 0)
		err = -errno;
	if (err)
		unlink(temporary);
	return err;
}
