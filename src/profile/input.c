/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "util/cleanup.h"

/* Makes room for at least one more byte than max_bytes allows, so that the excess is noticed. */
static int reserve(uint8_t **data, size_t size, size_t *capacity, size_t max_bytes)
{
	size_t wanted = *capacity ? *capacity * 2 : 65536;
	uint8_t *grown;

	if (size > max_bytes)
		return -E2BIG;
	if (size < *capacity)
		return 0;
	if (wanted > max_bytes + 1)
		wanted = max_bytes + 1;
	grown = realloc(*data, wanted);
	if (!grown)
		return -ENOMEM;
	*data = grown;
	*capacity = wanted;
	return 0;
}

int input_read(const char *path, size_t max_bytes, uint8_t **ret, size_t *ret_size)
{
	int fd _cleanup_close_ = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *data _cleanup_free_ = NULL;
	size_t capacity = 0, size = 0;
	ssize_t count;
	int err;

	if (fd < 0)
		return -errno;
	for (;;) {
		err = reserve(&data, size, &capacity, max_bytes);
		if (err)
			return err;
		count = read(fd, data + size, capacity - size);
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (!count)
			break;
		size += count;
	}
	*ret = take_ptr(data);
	*ret_size = size;
	return 0;
}

static void cleanup_inflate(z_stream *zlib)
{
	inflateEnd(zlib);
}

int input_gunzip(const void *data, size_t size, size_t max_bytes, uint8_t **ret, size_t *ret_size)
{
	z_stream zlib CLEANUP(inflate) = {.next_in = (uint8_t *)data, .avail_in = size};
	uint8_t *out _cleanup_free_ = NULL;
	size_t capacity = 0, count = 0;
	int status = Z_OK;
	int err;

	if (inflateInit2(&zlib, 15 + 16) != Z_OK)
		return -ENOMEM;
	while (status != Z_STREAM_END || zlib.avail_in) {
		/* Several gzip members one after the other are one file. */
		if (status == Z_STREAM_END && inflateReset(&zlib) != Z_OK)
			return -EBADMSG;
		err = reserve(&out, count, &capacity, max_bytes);
		if (err)
			return err;
		zlib.next_out = out + count;
		zlib.avail_out = capacity - count;
		status = inflate(&zlib, Z_NO_FLUSH);
		count = capacity - zlib.avail_out;
		if (status == Z_MEM_ERROR)
			return -ENOMEM;
		/* Z_BUF_ERROR: the input ended too early. */
		if (status != Z_OK && status != Z_STREAM_END)
			return -EBADMSG;
		if (count > max_bytes)
			return -E2BIG;
	}
	*ret = take_ptr(out);
	*ret_size = count;
	return 0;
}
