/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ELF images by libelf and pread().
 *
 * The file is never mapped: one that is truncated while it is read gives short reads, not SIGBUS.
 * Everything in it is foreign: segments whose ranges wrap around are dropped when it is opened, so
 * that the sums below cannot overflow.
 */
#include "elf/image.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "util/cursor.h"

/* Small reads share blocks; a read of up to BLOCK_OVERLAP bytes lies whole in one of them. */
#define BLOCK_SIZE    65536u
#define BLOCK_OVERLAP 4096u

#define NOTES_MAX_SIZE	  65536u
#define BUILD_ID_MAX_SIZE 64u
#define INTERP_MAX_SIZE	  4096u
#define DYNAMIC_MAX_SIZE  65536u
/* Of programs: linkers make some ten. The bound is that of the sum of what is read for each. */
#define PHDRS_MAX 1024u

#define PAGE_SIZE 4096u

struct segment {
	uint64_t offset;
	uint64_t vaddr;
	uint64_t size; /* in the file, not reaching past its end */
	bool executable;
};

struct block_key {
	uint64_t offset;
	uint64_t size;
};

struct block {
	struct block_key key;
	size_t size; /* bytes read */
	UT_hash_handle hh;
	uint8_t data[];
};

struct image {
	int fd;
	char *path;
	Elf *elf;
	uint64_t file_size;
	bool executable;
	char *interpreter;
	char build_id[2 * BUILD_ID_MAX_SIZE + 1];
	struct segment *segments; /* the PT_LOADs */
	size_t segment_count;
	struct block *blocks;
};

static void forget_blocks(struct image *image)
{
	struct block *block, *next;

	HASH_ITER (hh, image->blocks, block, next) {
		HASH_DEL(image->blocks, block);
		free(block);
	}
}

void image_forget(struct image *image)
{
	Elf *elf = elf_begin(image->fd, ELF_C_READ, NULL);

	forget_blocks(image);
	if (!elf)
		return;
	elf_end(image->elf);
	image->elf = elf;
}

void image_free(struct image *image)
{
	if (!image)
		return;
	forget_blocks(image);
	if (image->elf)
		elf_end(image->elf);
	if (image->fd >= 0)
		close(image->fd);
	free(image->segments);
	free(image->interpreter);
	free(image->path);
	free(image);
}

static int read_at(int fd, uint64_t offset, void *data, size_t size, size_t *ret_size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pread(fd, (uint8_t *)data + done, size - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += n;
	}
	*ret_size = done;
	return 0;
}

/* The bytes at a file range, cached under exactly this range; NULL if none could be read. */
static const struct block *block_load(struct image *image, uint64_t offset, size_t size)
{
	struct block_key key = {offset, size};
	struct block *block;

	HASH_FIND(hh, image->blocks, &key, sizeof(key), block);
	if (block)
		return block;
	block = malloc(sizeof(*block) + size);
	if (!block)
		return NULL;
	block->key = key;
	if (read_at(image->fd, offset, block->data, size, &block->size) < 0 || !block->size) {
		free(block);
		return NULL;
	}
	HASH_ADD(hh, image->blocks, key, sizeof(key), block);
	if (!block->hh.tbl) {
		free(block);
		return NULL;
	}
	return block;
}

/* Up to size bytes at a file offset; *ret_size is less where the file ends. */
static const uint8_t *file_bytes(struct image *image, uint64_t offset, size_t size,
				 size_t *ret_size)
{
	const struct block *block;
	uint64_t skip = 0;

	if (offset >= image->file_size || !size)
		return NULL;
	if (size > image->file_size - offset)
		size = image->file_size - offset;
	if (size <= BLOCK_OVERLAP) {
		skip = offset % BLOCK_SIZE;
		block = block_load(image, offset - skip, BLOCK_SIZE + BLOCK_OVERLAP);
	} else {
		block = block_load(image, offset, size);
	}
	if (!block || block->size <= skip)
		return NULL;
	*ret_size = size < block->size - skip ? size : block->size - skip;
	return block->data + skip;
}

/* Notes are padded to 4 bytes, or to 8 in segments with that alignment. */
static void load_build_id(struct image *image, const GElf_Phdr *phdr)
{
	size_t align = phdr->p_align == 8 ? 8 : 4, size;
	const uint8_t *bytes;
	struct cursor c;

	bytes = file_bytes(image, phdr->p_offset,
			   phdr->p_filesz < NOTES_MAX_SIZE ? phdr->p_filesz : NOTES_MAX_SIZE,
			   &size);
	if (!bytes)
		return;
	c = cursor_init(bytes, size);
	while (!c.underflow && cursor_left(&c)) {
		uint32_t name_size = cursor_u32(&c), desc_size = cursor_u32(&c);
		uint32_t type = cursor_u32(&c);
		const char *name = cursor_bytes(&c, name_size);
		const uint8_t *desc;

		cursor_bytes(&c, -(12 + (size_t)name_size) & (align - 1));
		desc = cursor_bytes(&c, desc_size);
		if (!desc)
			return;
		if (type == NT_GNU_BUILD_ID && name_size == 4 && !memcmp(name, "GNU", 4) &&
		    desc_size && desc_size <= BUILD_ID_MAX_SIZE) {
			for (size_t i = 0; i < desc_size; i++)
				sprintf(image->build_id + 2 * i, "%02x", desc[i]);
			return;
		}
		cursor_bytes(&c, -(size_t)desc_size & (align - 1));
	}
}

static int load_interpreter(struct image *image, const GElf_Phdr *phdr)
{
	size_t size;
	const uint8_t *bytes;

	bytes = file_bytes(image, phdr->p_offset,
			   phdr->p_filesz < INTERP_MAX_SIZE ? phdr->p_filesz : INTERP_MAX_SIZE,
			   &size);
	if (!bytes || image->interpreter)
		return 0;
	image->interpreter = strndup((const char *)bytes, size);
	return image->interpreter ? 0 : -ENOMEM;
}

struct dynamic_facts {
	bool pie;
	bool soname;
};

static void load_dynamic(struct image *image, const GElf_Phdr *phdr, struct dynamic_facts *facts)
{
	size_t size;
	const uint8_t *bytes;
	struct cursor c;

	bytes = file_bytes(image, phdr->p_offset,
			   phdr->p_filesz < DYNAMIC_MAX_SIZE ? phdr->p_filesz : DYNAMIC_MAX_SIZE,
			   &size);
	if (!bytes)
		return;
	c = cursor_init(bytes, size);
	while (cursor_left(&c) >= 16) {
		uint64_t tag = cursor_u64(&c), value = cursor_u64(&c);

		if (tag == DT_NULL)
			break;
		if (tag == DT_FLAGS_1 && (value & DF_1_PIE))
			facts->pie = true;
		if (tag == DT_SONAME)
			facts->soname = true;
	}
}

static void add_segment(struct image *image, const GElf_Phdr *phdr)
{
	struct segment segment = {
		.offset = phdr->p_offset,
		.vaddr = phdr->p_vaddr,
		.size = phdr->p_filesz,
		.executable = phdr->p_flags & PF_X,
	};

	if (segment.offset >= image->file_size)
		return;
	if (segment.size > image->file_size - segment.offset)
		segment.size = image->file_size - segment.offset;
	if (!segment.size || segment.size > UINT64_MAX - segment.vaddr)
		return;
	image->segments[image->segment_count++] = segment;
}

static int load_segments(struct image *image, bool fixed)
{
	struct dynamic_facts facts = {};
	bool interp = false;
	size_t count;

	if (elf_getphdrnum(image->elf, &count) || count > PHDRS_MAX)
		return -ENOEXEC;
	image->segments = calloc(count ? count : 1, sizeof(*image->segments));
	if (!image->segments)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;
		int err = 0;

		if (!gelf_getphdr(image->elf, i, &phdr))
			return -ENOEXEC;
		switch (phdr.p_type) {
		case PT_LOAD:
			add_segment(image, &phdr);
			break;
		case PT_INTERP:
			interp = true;
			err = load_interpreter(image, &phdr);
			break;
		case PT_NOTE:
			if (!image->build_id[0])
				load_build_id(image, &phdr);
			break;
		case PT_DYNAMIC:
			load_dynamic(image, &phdr, &facts);
			break;
		}
		if (err)
			return err;
	}
	/* libc.so.6 can be run and has an interpreter, but is a library by its DT_SONAME. */
	image->executable = fixed || facts.pie || (interp && !facts.soname);
	return 0;
}

static bool elf_supported(const GElf_Ehdr *ehdr)
{
	return ehdr->e_ident[EI_CLASS] == ELFCLASS64 && ehdr->e_ident[EI_DATA] == ELFDATA2LSB &&
	       ehdr->e_machine == EM_X86_64 && (ehdr->e_type == ET_EXEC || ehdr->e_type == ET_DYN);
}

int image_open(int fd, const char *path, struct image **ret)
{
	struct image *image CLEANUP(image) = calloc(1, sizeof(*image));
	struct stat st;
	GElf_Ehdr ehdr;
	int err;

	if (!image) {
		close(fd);
		return -ENOMEM;
	}
	image->fd = fd;
	image->path = strdup(path);
	if (!image->path)
		return -ENOMEM;
	if (fstat(fd, &st))
		return -errno;
	/* Reading a device or a pipe could block or have effects. */
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(Elf64_Ehdr))
		return -ENOEXEC;
	image->file_size = st.st_size;
	elf_version(EV_CURRENT);
	image->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!image->elf || elf_kind(image->elf) != ELF_K_ELF || !gelf_getehdr(image->elf, &ehdr))
		return -ENOEXEC;
	if (!elf_supported(&ehdr))
		return -ENOEXEC;
	err = load_segments(image, ehdr.e_type == ET_EXEC);
	if (err)
		return err;
	forget_blocks(image);
	*ret = take_ptr(image);
	return 0;
}

const char *image_path(const struct image *image)
{
	return image->path;
}

int image_fd(const struct image *image)
{
	return image->fd;
}

Elf *image_elf(struct image *image)
{
	return image->elf;
}

Elf *image_elf_new(const struct image *image)
{
	return elf_begin(image->fd, ELF_C_READ, NULL);
}

const char *image_build_id(const struct image *image)
{
	return image->build_id;
}

bool image_is_executable(const struct image *image)
{
	return image->executable;
}

const char *image_interpreter(const struct image *image)
{
	return image->interpreter;
}

static const struct segment *segment_by_vaddr(const struct image *image, uint64_t vaddr)
{
	for (size_t i = 0; i < image->segment_count; i++) {
		const struct segment *segment = &image->segments[i];

		if (vaddr >= segment->vaddr && vaddr - segment->vaddr < segment->size)
			return segment;
	}
	return NULL;
}

int image_offset_to_vaddr(const struct image *image, uint64_t offset, uint64_t *ret)
{
	const struct segment *found = NULL;

	/* Should two segments hold the offset, the question is about code. */
	for (size_t i = 0; i < image->segment_count; i++) {
		const struct segment *segment = &image->segments[i];

		if (offset >= segment->offset && offset - segment->offset < segment->size &&
		    (!found || (segment->executable && !found->executable)))
			found = segment;
	}
	if (!found)
		return -ERANGE;
	*ret = offset - found->offset + found->vaddr;
	return 0;
}

int image_vaddr_to_offset(const struct image *image, uint64_t vaddr, uint64_t *ret)
{
	const struct segment *segment = segment_by_vaddr(image, vaddr);

	if (!segment)
		return -ERANGE;
	*ret = vaddr - segment->vaddr + segment->offset;
	return 0;
}

int image_bias(const struct image *image, uint64_t start, uint64_t offset, uint64_t *ret)
{
	for (size_t i = 0; i < image->segment_count; i++) {
		const struct segment *segment = &image->segments[i];
		const uint64_t skew = segment->offset & (PAGE_SIZE - 1);
		const uint64_t first = segment->offset - skew;

		if (!segment->executable || offset < first ||
		    offset - first >= segment->size + skew)
			continue;
		*ret = start - (segment->vaddr - skew + (offset - first));
		return 0;
	}
	return -ERANGE;
}

/* Linkers put a segment at the next offset that is congruent to its address. */
static uint64_t next_offset(uint64_t end, const GElf_Phdr *phdr)
{
	const uint64_t align = phdr->p_align > PAGE_SIZE ? phdr->p_align : PAGE_SIZE;

	return end + ((phdr->p_vaddr - end) & (align - 1));
}

int image_assume_code(struct image *image, uint64_t offset)
{
	uint64_t end = 0;
	GElf_Phdr phdr;

	for (size_t i = 0; gelf_getphdr(image->elf, i, &phdr); i++) {
		uint64_t start = next_offset(end, &phdr);

		if (phdr.p_type != PT_LOAD)
			continue;
		/* eu-strip leaves the headers as they were, objcopy --only-keep-debug does not. */
		if (offset)
			start = offset + (phdr.p_vaddr & (PAGE_SIZE - 1));
		else if (phdr.p_filesz)
			start = phdr.p_offset;
		if (start > UINT64_MAX / 2 || phdr.p_memsz > UINT64_MAX / 2 ||
		    phdr.p_vaddr > UINT64_MAX / 2)
			return -ENOENT;
		end = start + phdr.p_memsz;
		if (!(phdr.p_flags & PF_X))
			continue;
		/* There is room for one: this is one. */
		image->segments[0] = (struct segment){
			.offset = start,
			.vaddr = phdr.p_vaddr,
			.size = phdr.p_memsz,
			.executable = true,
		};
		image->segment_count = 1;
		return 0;
	}
	return -ENOENT;
}

const uint8_t *image_bytes(struct image *image, uint64_t vaddr, size_t size, size_t *ret_size)
{
	const struct segment *segment = segment_by_vaddr(image, vaddr);
	uint64_t skip;

	if (!segment)
		return NULL;
	skip = vaddr - segment->vaddr;
	if (size > segment->size - skip)
		size = segment->size - skip;
	return file_bytes(image, segment->offset + skip, size, ret_size);
}
