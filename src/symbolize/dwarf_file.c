/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/dwarf_file.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <gelf.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "util/regular.h"
#include "util/root.h"

#define DEBUG_FOLDER	  "/usr/lib/debug/.build-id"
#define BUILD_ID_MAX_SIZE 64

static const char *const section_names[] = {
#define X(name) #name,
	DWARF_SECTIONS(X)
#undef X
};

void dwarf_file_close(struct dwarf_file *file)
{
	if (!file)
		return;
	if (file->dwarf)
		dwarf_end(file->dwarf);
	dwarf_file_close(file->supplement);
	if (file->elf)
		elf_end(file->elf);
	if (file->fd >= 0)
		close(file->fd);
	free(file->memory);
	free(file);
}

int dwarf_file_open_path(const struct dwarf_place *place, const char *path)
{
	int fd _cleanup_close_ = -1;
	struct stat st;

	if (place->root_fd < 0 || *path != '/')
		return regular_open(path);
	fd = root_open_file(place->root_fd, path);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return regular_open(path);
	return take_fd(fd);
}

/* What follows ".debug_" or ".zdebug_"; NULL for a section of another kind. */
static const char *debug_name(const char *name)
{
	if (name && !strncmp(name, ".debug_", 7))
		return name + 7;
	return name && !strncmp(name, ".zdebug_", 8) ? name + 8 : NULL;
}

static bool is_debug_section(const char *name, bool split)
{
	const char *suffix = name ? strstr(name, ".dwo") : NULL;

	/* The index of a .dwp has no suffix. */
	if (split && name && !strcmp(name, "cu_index"))
		return true;
	return name && (suffix && !suffix[4]) == split;
}

/* What a section will take in memory. */
static uint64_t section_size(Elf_Scn *scn, const GElf_Shdr *shdr, const char *name)
{
	uint64_t size = shdr->sh_size;
	GElf_Chdr chdr;
	Elf_Data *data;

	if ((shdr->sh_flags & SHF_COMPRESSED) && gelf_getchdr(scn, &chdr))
		return size + chdr.ch_size;
	if (!strncmp(name, ".zdebug_", 8)) {
		/* "ZLIB" and the size, big endian */
		data = elf_rawdata(scn, NULL);
		if (data && data->d_size >= 12) {
			uint64_t plain;

			memcpy(&plain, (const char *)data->d_buf + 4, sizeof(plain));
			plain = be64toh(plain);
			return plain < DWARF_FILE_MAX_BYTES ? size + plain : UINT64_MAX;
		}
	}
	return size;
}

/* Called for each section with DWARF in it. */
typedef int section_func(struct dwarf_file *file, Elf_Scn *scn, const GElf_Shdr *shdr,
			 const char *name);

static int for_each_section(struct dwarf_file *file, bool split, section_func *func)
{
	Elf_Scn *scn = NULL;
	size_t names;
	int err = 0;

	if (elf_getshdrstrndx(file->elf, &names))
		return -EBADMSG;
	while (!err && (scn = elf_nextscn(file->elf, scn))) {
		GElf_Shdr shdr;
		const char *name;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type == SHT_NOBITS)
			continue;
		name = elf_strptr(file->elf, names, shdr.sh_name);
		if (is_debug_section(debug_name(name), split))
			err = func(file, scn, &shdr, name);
	}
	return err;
}

static int add_size(struct dwarf_file *file, Elf_Scn *scn, const GElf_Shdr *shdr, const char *name)
{
	uint64_t size = section_size(scn, shdr, name);

	if (size > DWARF_FILE_MAX_BYTES - file->size)
		return -E2BIG;
	file->size += size;
	return 0;
}

static int keep_section(struct dwarf_file *file, Elf_Scn *scn, const GElf_Shdr *shdr,
			const char *name)
{
	const char *plain = debug_name(name);
	size_t length = strcspn(plain, ".");

	for (size_t i = 0; i < DWARF_SECTION_COUNT; i++) {
		Elf_Data *data;

		if (strlen(section_names[i]) != length || strncmp(plain, section_names[i], length))
			continue;
		/* libdw, too, takes the first of a name. */
		if (file->sections[i].data)
			return 0;
		if (shdr->sh_flags & SHF_COMPRESSED)
			elf_compress(scn, 0, 0);
		else if (name[1] == 'z')
			elf_compress_gnu(scn, 0, 0);
		data = elf_rawdata(scn, NULL);
		if (data && data->d_buf && data->d_size)
			file->sections[i] = (struct line_section){data->d_buf, data->d_size};
	}
	return 0;
}

/* Looks at the sizes first, then lets libdw and us read. */
static int load(struct dwarf_file *file)
{
	int err = for_each_section(file, false, add_size);

	if (err)
		return err;
	if (!file->size)
		return -ENOENT;
	file->dwarf = dwarf_begin_elf(file->elf, DWARF_C_READ, NULL);
	if (!file->dwarf)
		return -EBADMSG;
	err = for_each_section(file, false, keep_section);
	if (err)
		return err;
	return file->sections[DWARF_SECTION_info].data ? 0 : -ENOENT;
}

/*
 * A supplementary file is named, with its build-id, in .gnu_debugaltlink. Without it there are no
 * names for what was moved there.
 */
static int open_supplement_at(const struct dwarf_place *place, const char *path, const void *id,
			      ssize_t id_size, struct dwarf_file **ret)
{
	struct dwarf_file *file CLEANUP(dwarf_file) = calloc(1, sizeof(*file));
	const void *found;
	ssize_t found_size;
	int err;

	if (!file)
		return -ENOMEM;
	file->fd = dwarf_file_open_path(place, path);
	if (file->fd < 0)
		return file->fd;
	file->elf = elf_begin(file->fd, ELF_C_READ, NULL);
	if (!file->elf || elf_kind(file->elf) != ELF_K_ELF)
		return -EBADMSG;
	found_size = dwelf_elf_gnu_build_id(file->elf, &found);
	if (found_size != id_size || memcmp(found, id, id_size))
		return -EBADMSG;
	err = load(file);
	if (err)
		return err;
	*ret = take_ptr(file);
	return 0;
}

static int find_supplement(const struct dwarf_file *file, const struct dwarf_place *place,
			   struct dwarf_file **ret)
{
	const char *name = NULL, *path = place->path, *slash = strrchr(path, '/');
	char candidate[PATH_MAX], hex[2 * BUILD_ID_MAX_SIZE + 1];
	const void *id;
	ssize_t id_size = dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &id);
	int err;

	if (id_size < 2 || id_size > BUILD_ID_MAX_SIZE)
		return -ENOENT;
	if (*name == '/')
		snprintf(candidate, sizeof(candidate), "%s", name);
	else
		snprintf(candidate, sizeof(candidate), "%.*s%s",
			 slash ? (int)(slash + 1 - path) : 0, path, name);
	err = open_supplement_at(place, candidate, id, id_size, ret);
	if (err == 0 || err == -ENOMEM)
		return err;
	for (ssize_t i = 0; i < id_size; i++)
		sprintf(hex + 2 * i, "%02x", ((const uint8_t *)id)[i]);
	snprintf(candidate, sizeof(candidate), DEBUG_FOLDER "/%.2s/%s.debug", hex, hex + 2);
	return open_supplement_at(place, candidate, id, id_size, ret);
}

static int attach_supplement(struct dwarf_file *file, const struct dwarf_place *place)
{
	static const uint8_t nothing[1];
	struct line_section none[DWARF_SECTION_COUNT] = {
		[DWARF_SECTION_info] = {nothing, sizeof(nothing)},
	};
	const char *name;
	const void *id;
	int err;

	if (dwelf_dwarf_gnu_debugaltlink(file->dwarf, &name, &id) <= 0)
		return 0;
	err = find_supplement(file, place, &file->supplement);
	/* An empty one keeps libdw from a search of its own. */
	if (err && err != -ENOMEM)
		err = dwarf_file_make(none, &file->supplement);
	if (err)
		return err;
	dwarf_setalt(file->dwarf, file->supplement->dwarf);
	return 0;
}

int dwarf_file_open(int fd, const struct dwarf_place *place, struct dwarf_file **ret)
{
	struct dwarf_file *file CLEANUP(dwarf_file) = calloc(1, sizeof(*file));
	int err;

	if (!file)
		return -ENOMEM;
	file->fd = -1;
	elf_version(EV_CURRENT);
	file->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!file->elf || elf_kind(file->elf) != ELF_K_ELF)
		return -EBADMSG;
	err = load(file);
	if (!err)
		err = attach_supplement(file, place);
	if (err)
		return err;
	*ret = take_ptr(file);
	return 0;
}

int dwarf_file_open_split(int fd, struct dwarf_file **ret)
{
	struct dwarf_file *file CLEANUP(dwarf_file) = calloc(1, sizeof(*file));
	int err;

	if (!file) {
		close(fd);
		return -ENOMEM;
	}
	file->fd = fd;
	file->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!file->elf || elf_kind(file->elf) != ELF_K_ELF)
		return -EBADMSG;
	err = for_each_section(file, true, add_size);
	if (!err)
		err = for_each_section(file, true, keep_section);
	if (err)
		return err;
	if (!file->sections[DWARF_SECTION_info].data || !file->sections[DWARF_SECTION_abbrev].data)
		return -ENOENT;
	*ret = take_ptr(file);
	return 0;
}

/* A header, the sections' headers, their names, and their bytes one after the other. */
static int compose(const struct line_section *sections, char **ret, size_t *ret_size)
{
	/* No section 0, and the names as the last one. */
	const size_t count = DWARF_SECTION_COUNT + 2;
	size_t offset = sizeof(Elf64_Ehdr) + count * sizeof(Elf64_Shdr), size = offset;
	Elf64_Shdr *shdrs;
	Elf64_Ehdr *ehdr;
	char *memory, *names;
	size_t name = 1;

	size += DWARF_SECTION_COUNT * 24 + 16;
	for (size_t i = 0; i < DWARF_SECTION_COUNT; i++)
		size += (sections[i].size + 7) & ~(size_t)7;
	memory = calloc(1, size);
	if (!memory)
		return -ENOMEM;
	ehdr = (Elf64_Ehdr *)memory;
	shdrs = (Elf64_Shdr *)(ehdr + 1);
	names = memory + offset;
	memcpy(ehdr->e_ident, ELFMAG, SELFMAG);
	ehdr->e_ident[EI_CLASS] = ELFCLASS64;
	ehdr->e_ident[EI_DATA] = ELFDATA2LSB;
	ehdr->e_ident[EI_VERSION] = EV_CURRENT;
	ehdr->e_type = ET_DYN;
	ehdr->e_machine = EM_X86_64;
	ehdr->e_version = EV_CURRENT;
	ehdr->e_shoff = sizeof(*ehdr);
	ehdr->e_ehsize = sizeof(*ehdr);
	ehdr->e_shentsize = sizeof(*shdrs);
	ehdr->e_shnum = count;
	ehdr->e_shstrndx = count - 1;
	offset += DWARF_SECTION_COUNT * 24 + 16;
	for (size_t i = 0; i < DWARF_SECTION_COUNT; i++) {
		Elf64_Shdr *shdr = &shdrs[i + 1];

		shdr->sh_name = name;
		name += sprintf(names + name, ".debug_%s", section_names[i]) + 1;
		shdr->sh_type = sections[i].size ? SHT_PROGBITS : SHT_NOBITS;
		shdr->sh_offset = offset;
		shdr->sh_size = sections[i].size;
		shdr->sh_addralign = 1;
		if (sections[i].size)
			memcpy(memory + offset, sections[i].data, sections[i].size);
		offset += (sections[i].size + 7) & ~(size_t)7;
	}
	shdrs[count - 1].sh_name = name;
	name += sprintf(names + name, ".shstrtab") + 1;
	shdrs[count - 1].sh_type = SHT_STRTAB;
	shdrs[count - 1].sh_offset = names - memory;
	shdrs[count - 1].sh_size = name;
	shdrs[count - 1].sh_addralign = 1;
	*ret = memory;
	*ret_size = size;
	return 0;
}

int dwarf_file_make(const struct line_section sections[DWARF_SECTION_COUNT],
		    struct dwarf_file **ret)
{
	struct dwarf_file *file CLEANUP(dwarf_file) = calloc(1, sizeof(*file));
	char *memory;
	size_t size;
	int err;

	if (!file)
		return -ENOMEM;
	file->fd = -1;
	err = compose(sections, &memory, &size);
	if (err)
		return err;
	file->memory = memory;
	file->elf = elf_memory(memory, size);
	if (!file->elf)
		return -EBADMSG;
	err = load(file);
	if (err)
		return err;
	*ret = take_ptr(file);
	return 0;
}

const char *dwarf_file_check_string(const struct dwarf_file *file, const char *string)
{
	static const enum dwarf_section places[] = {
		DWARF_SECTION_str,
		DWARF_SECTION_line_str,
		DWARF_SECTION_info,
	};
	const uint8_t *bytes = (const uint8_t *)string;

	for (size_t i = 0; i < ARRAY_SIZE(places) && string; i++) {
		const struct line_section *section = &file->sections[places[i]];

		if (section->data && bytes >= section->data &&
		    bytes < section->data + section->size)
			return memchr(bytes, 0, section->data + section->size - bytes) ? string
										       : NULL;
	}
	return file->supplement && string ? dwarf_file_check_string(file->supplement, string)
					  : NULL;
}
