/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where an image's call frame information is, and the pointers in it.
 *
 * A static program has only the section .eh_frame, a file without sections only PT_GNU_EH_FRAME,
 * which points to .eh_frame_hdr: version u8 1, three encodings u8, then the address of .eh_frame in
 * the first of them. The search table behind it is of no use to a reader of everything.
 */
#include "elf/cfi_section.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>
#include <sys/stat.h>

#define SECTION_MAX_SIZE (1u << 30)

enum {
	PE_absptr = 0x00,
	PE_uleb128 = 0x01,
	PE_udata2 = 0x02,
	PE_udata4 = 0x03,
	PE_udata8 = 0x04,
	PE_sleb128 = 0x09,
	PE_sdata2 = 0x0a,
	PE_sdata4 = 0x0b,
	PE_sdata8 = 0x0c,
	PE_pcrel = 0x10,
	PE_datarel = 0x30,
};

bool cfi_read_pointer(struct cursor *c, uint8_t encoding, const struct cfi_bases *bases,
		      uint64_t *ret)
{
	uint64_t base = 0, value;

	switch (encoding & 0xf0) {
	case PE_absptr:
		break;
	case PE_pcrel:
		base = bases->vaddr + (uint64_t)(c->pos - bases->bytes);
		break;
	case PE_datarel:
		if (!bases->data)
			return false;
		base = bases->data;
		break;
	case CFI_PE_ALIGNED:
		if (encoding != CFI_PE_ALIGNED)
			return false;
		cursor_bytes(c, -(bases->vaddr + (uint64_t)(c->pos - bases->bytes)) & 7);
		break;
	default:
		return false;
	}
	switch (encoding & 0x0f) {
	case PE_absptr:
	case PE_udata8:
	case PE_sdata8:
		value = cursor_u64(c);
		break;
	case PE_uleb128:
		value = cursor_uleb128(c);
		break;
	case PE_udata2:
		value = cursor_u16(c);
		break;
	case PE_udata4:
		value = cursor_u32(c);
		break;
	case PE_sleb128:
		value = (uint64_t)cursor_sleb128(c);
		break;
	case PE_sdata2:
		value = (uint64_t)(int64_t)(int16_t)cursor_u16(c);
		break;
	case PE_sdata4:
		value = (uint64_t)(int64_t)(int32_t)cursor_u32(c);
		break;
	default:
		return false;
	}
	*ret = value ? base + value : 0;
	return !c->underflow;
}

void cfi_section_fini(struct cfi_section *section)
{
	free(section->bytes);
	*section = (struct cfi_section){};
}

static int read_file(struct image *image, uint64_t offset, uint64_t size,
		     struct cfi_section *section)
{
	struct stat st;

	if (fstat(image_fd(image), &st))
		return -errno;
	if (offset >= (uint64_t)st.st_size)
		return -ENOENT;
	if (size > (uint64_t)st.st_size - offset)
		size = (uint64_t)st.st_size - offset;
	if (size > SECTION_MAX_SIZE)
		return -E2BIG;
	section->bytes = malloc(size ? size : 1);
	if (!section->bytes)
		return -ENOMEM;
	while (section->size < size) {
		ssize_t n = pread(image_fd(image), section->bytes + section->size,
				  size - section->size, offset + section->size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		section->size += n;
	}
	section->bases.bytes = section->bytes;
	return 0;
}

static Elf_Scn *find_section(Elf *elf, const char *name, GElf_Shdr *shdr)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *found;

		if (!gelf_getshdr(scn, shdr) || shdr->sh_type == SHT_NOBITS)
			continue;
		found = elf_strptr(elf, names, shdr->sh_name);
		if (found && !strcmp(found, name))
			return scn;
	}
	return NULL;
}

/* What datarel means outside .eh_frame_hdr; nothing for x86-64 is known to write it. */
static uint64_t data_base(Elf *elf)
{
	GElf_Shdr shdr;

	return find_section(elf, ".got", &shdr) ? shdr.sh_addr : 0;
}

/* Without sections: .eh_frame_hdr, of which only the pointer is needed. */
static int read_by_header(struct image *image, struct cfi_section *section)
{
	GElf_Phdr phdr = {}, load;
	uint64_t start, offset;
	size_t count, size, i;
	const uint8_t *bytes;
	struct cfi_bases bases;
	struct cursor c;

	if (elf_getphdrnum(image_elf(image), &count))
		return -ENOENT;
	for (i = 0; i < count; i++)
		if (gelf_getphdr(image_elf(image), i, &phdr) && phdr.p_type == PT_GNU_EH_FRAME)
			break;
	bytes = i < count ? image_bytes(image, phdr.p_vaddr, 16, &size) : NULL;
	if (!bytes)
		return -ENOENT;
	bases = (struct cfi_bases){bytes, phdr.p_vaddr, phdr.p_vaddr};
	c = cursor_init(bytes, size);
	if (cursor_u8(&c) != 1)
		return -ENOENT;
	i = cursor_u8(&c);
	cursor_bytes(&c, 2);
	if (!cfi_read_pointer(&c, i, &bases, &start) ||
	    image_vaddr_to_offset(image, start, &offset))
		return -ENOENT;
	/* It ends somewhere in its segment. */
	for (i = 0; i < count; i++)
		if (gelf_getphdr(image_elf(image), i, &load) && load.p_type == PT_LOAD &&
		    start - load.p_vaddr < load.p_filesz)
			break;
	if (i == count)
		return -ENOENT;
	section->terminated = true;
	section->bases.vaddr = start;
	return read_file(image, offset, load.p_filesz - (start - load.p_vaddr), section);
}

int cfi_section_read(struct image *image, struct cfi_section *section)
{
	GElf_Shdr shdr;

	if (find_section(image_elf(image), ".eh_frame", &shdr)) {
		section->bases.vaddr = shdr.sh_addr;
		section->bases.data = data_base(image_elf(image));
		if (!read_file(image, shdr.sh_offset, shdr.sh_size, section) && section->size)
			return 0;
		free(section->bytes);
		*section = (struct cfi_section){};
	}
	return read_by_header(image, section);
}

/* May be compressed, so libelf reads it. */
int cfi_section_read_debug(struct image *image, struct cfi_section *section)
{
	const Elf_Data *data;
	GElf_Shdr shdr;
	Elf_Scn *scn = find_section(image_elf(image), ".debug_frame", &shdr);

	if (!scn || shdr.sh_size > SECTION_MAX_SIZE)
		return -ENOENT;
	if (shdr.sh_flags & SHF_COMPRESSED) {
		GElf_Chdr chdr;

		if (!gelf_getchdr(scn, &chdr) || chdr.ch_size > SECTION_MAX_SIZE ||
		    elf_compress(scn, 0, 0) < 0)
			return -ENOENT;
	}
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf || !data->d_size)
		return -ENOENT;
	section->bytes = malloc(data->d_size);
	if (!section->bytes)
		return -ENOMEM;
	memcpy(section->bytes, data->d_buf, data->d_size);
	section->size = data->d_size;
	section->debug = true;
	section->bases = (struct cfi_bases){.bytes = section->bytes};
	return 0;
}
