/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/minidebug.h"

#include <errno.h>
#include <gelf.h>
#include <lzma.h>
#include <string.h>
#include <sys/mman.h>

/* The largest known, of a browser's library, unpacks to 30 MiB. xz -9 needs 65 MiB to unpack. */
#define UNPACKED_MAX_BYTES (64u << 20)
#define PACKED_MAX_BYTES   (32u << 20)
#define XZ_MEMORY_BYTES	   (96u << 20)
#define CHUNK_SIZE	   65536u

static const Elf_Data *find_section(Elf *elf)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name;
		GElf_Shdr shdr;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type == SHT_NOBITS ||
		    shdr.sh_size > PACKED_MAX_BYTES)
			continue;
		name = elf_strptr(elf, names, shdr.sh_name);
		if (name && !strcmp(name, ".gnu_debugdata"))
			return elf_rawdata(scn, NULL);
	}
	return NULL;
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			size -= n;
		}
	}
	return 0;
}

static int unpack(const Elf_Data *packed, int fd)
{
	_cleanup_free_ uint8_t *chunk = malloc(CHUNK_SIZE);
	lzma_stream stream = LZMA_STREAM_INIT;
	lzma_ret result;
	int err = 0;

	if (!chunk || lzma_stream_decoder(&stream, XZ_MEMORY_BYTES, 0) != LZMA_OK)
		return -ENOMEM;
	stream.next_in = packed->d_buf;
	stream.avail_in = packed->d_size;
	do {
		stream.next_out = chunk;
		stream.avail_out = CHUNK_SIZE;
		result = lzma_code(&stream, LZMA_FINISH);
		if (stream.total_out > UNPACKED_MAX_BYTES || result == LZMA_MEMLIMIT_ERROR)
			err = -E2BIG;
		else if (result == LZMA_MEM_ERROR)
			err = -ENOMEM;
		else if (result != LZMA_OK && result != LZMA_STREAM_END)
			err = -EBADMSG;
		else
			err = write_all(fd, chunk, CHUNK_SIZE - stream.avail_out);
	} while (!err && result == LZMA_OK);
	lzma_end(&stream);
	return err;
}

int minidebug_open(struct image *image, struct image **ret)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	_cleanup_close_ int fd = -1;
	const Elf_Data *packed;
	int err;

	if (!elf)
		return -ENOMEM;
	packed = find_section(elf);
	if (!packed || !packed->d_buf || !packed->d_size)
		return -ENOENT;
	fd = memfd_create("gnu_debugdata", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = unpack(packed, fd);
	return err ? err : image_open(take_fd(fd), image_path(image), ret);
}
