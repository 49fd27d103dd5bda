/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Executable PT_LOADs, and reads that keep nothing. */
#include "elf/code.h"

#include <errno.h>
#include <gelf.h>
#include <sys/stat.h>

static int compare_segments(const void *a, const void *b)
{
	const struct code_segment *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

static void add_segment(struct code *code, const GElf_Phdr *phdr, uint64_t file_size)
{
	struct code_segment segment = {phdr->p_vaddr, phdr->p_offset, phdr->p_filesz};

	if (code->count == CODE_MAX_SEGMENTS || segment.offset >= file_size)
		return;
	if (segment.size > file_size - segment.offset)
		segment.size = file_size - segment.offset;
	if (!segment.size || segment.size > UINT64_MAX - segment.vaddr)
		return;
	code->segments[code->count++] = segment;
}

int code_load(struct image *image, struct code *ret)
{
	struct code code = {.fd = image_fd(image)};
	struct stat st;
	size_t count;

	if (fstat(code.fd, &st))
		return -errno;
	if (elf_getphdrnum(image_elf(image), &count))
		return -ENOEXEC;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(image_elf(image), i, &phdr))
			return -ENOEXEC;
		if (phdr.p_type == PT_LOAD && phdr.p_flags & PF_X)
			add_segment(&code, &phdr, st.st_size);
	}
	if (!code.count)
		return -ENOENT;
	qsort(code.segments, code.count, sizeof(code.segments[0]), compare_segments);
	*ret = code;
	return 0;
}

const struct code_segment *code_at_vaddr(const struct code *code, uint64_t vaddr)
{
	for (size_t i = 0; i < code->count; i++)
		if (vaddr - code->segments[i].vaddr < code->segments[i].size)
			return &code->segments[i];
	return NULL;
}

const struct code_segment *code_at_offset(const struct code *code, uint64_t offset)
{
	for (size_t i = 0; i < code->count; i++)
		if (offset - code->segments[i].offset < code->segments[i].size)
			return &code->segments[i];
	return NULL;
}

size_t code_read(const struct code *code, uint64_t offset, void *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(code->fd, (uint8_t *)data + done, size - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += n;
	}
	return done;
}
