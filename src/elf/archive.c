/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/archive.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>
#include <sys/stat.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* libLLVM's archives together have a twentieth of these. */
#define ARCHIVE_MAX_ENTRIES (1u << 24)
#define CODE_MAX_BYTES	    (1ull << 28)
#define SECTION_MAX_BYTES   (1u << 28)
/* No demangler takes a longer one. */
#define NAME_MAX_LENGTH 65536u

struct name_entry {
	uint32_t index;
	UT_hash_handle hh;
	char text[];
};

/* An archive while it is read. */
struct reading {
	struct archive *archive;
	struct name_entry *names;
	uint32_t capacities[4];
	uint32_t next_section_key;
	uint64_t code_bytes;
	uint64_t name_bytes; /* scanned: names may share their ends */
};

/* One object while it is read. */
struct object {
	Elf *elf;
	size_t section_count;
	uint32_t first_key;
	uint32_t *code; /* by section index: in archive->sections, or ARCHIVE_NONE */
	bool *movable;	/* by section index: linkers move its parts one by one */
	const Elf_Data *symbols;
	size_t symbol_count;
	size_t strings; /* index of the section */
};

static void object_fini(struct object *object)
{
	free(object->code);
	free(object->movable);
	if (object->elf)
		elf_end(object->elf);
}

static void reading_fini(struct reading *reading)
{
	struct name_entry *entry, *next;

	HASH_ITER (hh, reading->names, entry, next) {
		HASH_DEL(reading->names, entry);
		free(entry);
	}
	archive_free(reading->archive);
}

void archive_free(struct archive *archive)
{
	if (!archive)
		return;
	for (uint32_t i = 0; i < archive->section_count; i++) {
		free(archive->sections[i].bytes);
		free(archive->sections[i].mask);
	}
	for (uint32_t i = 0; i < archive->name_count; i++)
		free(archive->names[i].text);
	free(archive->sections);
	free(archive->functions);
	free(archive->references);
	free(archive->names);
	free(archive);
}

/* Makes room for one more entry of a growing array. */
static int reserve(void *array, uint32_t *capacity, uint32_t count, size_t size)
{
	uint32_t wanted = *capacity ? 2 * *capacity : 64;
	void *grown;

	if (count < *capacity)
		return 0;
	if (count >= ARCHIVE_MAX_ENTRIES)
		return -E2BIG;
	grown = reallocarray(*(void **)array, wanted, size);
	if (!grown)
		return -ENOMEM;
	*(void **)array = grown;
	*capacity = wanted;
	return 0;
}

static int add_name(struct reading *reading, const char *text, uint32_t *ret)
{
	struct archive *archive = reading->archive;
	size_t length = strlen(text);
	struct name_entry *entry;
	char *copy;
	int err;

	HASH_FIND(hh, reading->names, text, length, entry);
	if (entry) {
		*ret = entry->index;
		return 0;
	}
	err = reserve(&archive->names, &reading->capacities[0], archive->name_count,
		      sizeof(*archive->names));
	if (err)
		return err;
	entry = malloc(sizeof(*entry) + length + 1);
	copy = strdup(text);
	if (!entry || !copy) {
		free(entry);
		free(copy);
		return -ENOMEM;
	}
	entry->index = archive->name_count;
	memcpy(entry->text, text, length + 1);
	HASH_ADD(hh, reading->names, text, length, entry);
	if (!entry->hh.tbl) {
		free(entry);
		free(copy);
		return -ENOMEM;
	}
	archive->names[archive->name_count] = (struct archive_name){copy, ARCHIVE_NONE};
	*ret = archive->name_count++;
	return 0;
}

/* Sections that linkers gather apart from the others, by the names of GNU ld's default script. */
static bool is_plain(const char *name)
{
	static const char *const apart[] = {".text.unlikely", ".text.exit", ".text.startup",
					    ".text.hot", ".text.sorted"};

	if (strncmp(name, ".text", 5) || (name[5] && name[5] != '.'))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(apart); i++)
		if (!strncmp(name, apart[i], strlen(apart[i])))
			return false;
	return true;
}

static int add_code(struct reading *reading, struct object *object, Elf_Scn *scn,
		    const GElf_Shdr *shdr, const char *name)
{
	struct archive *archive = reading->archive;
	const Elf_Data *data = elf_rawdata(scn, NULL);
	struct archive_section *section;
	size_t index = elf_ndxscn(scn);
	int err;

	if (!data || !data->d_buf || !data->d_size || data->d_size != shdr->sh_size ||
	    data->d_size > SECTION_MAX_BYTES || shdr->sh_addralign > SECTION_MAX_BYTES)
		return 0;
	reading->code_bytes += data->d_size;
	if (reading->code_bytes > CODE_MAX_BYTES)
		return -E2BIG;
	err = reserve(&archive->sections, &reading->capacities[1], archive->section_count,
		      sizeof(*archive->sections));
	if (err)
		return err;
	section = &archive->sections[archive->section_count];
	*section = (struct archive_section){
		.bytes = malloc(data->d_size),
		.mask = malloc(data->d_size),
		.size = data->d_size,
		.align = shdr->sh_addralign ? shdr->sh_addralign : 1,
		.member = archive->member_count,
		.key = object->first_key + index,
		.plain = is_plain(name),
	};
	object->code[index] = archive->section_count++;
	if (!section->bytes || !section->mask)
		return -ENOMEM;
	memcpy(section->bytes, data->d_buf, data->d_size);
	memset(section->mask, 0xff, data->d_size);
	return 0;
}

static int read_sections(struct reading *reading, struct object *object)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(object->elf, &names))
		return 0;
	while ((scn = elf_nextscn(object->elf, scn))) {
		size_t index = elf_ndxscn(scn);
		const char *name;
		GElf_Shdr shdr;
		int err;

		if (index >= object->section_count || !gelf_getshdr(scn, &shdr))
			continue;
		object->movable[index] = shdr.sh_flags & SHF_MERGE;
		if (shdr.sh_type == SHT_SYMTAB && shdr.sh_entsize == sizeof(Elf64_Sym)) {
			object->symbols = elf_getdata(scn, NULL);
			object->strings = shdr.sh_link;
		}
		name = elf_strptr(object->elf, names, shdr.sh_name);
		if (shdr.sh_type != SHT_PROGBITS || !(shdr.sh_flags & SHF_EXECINSTR) ||
		    shdr.sh_flags & SHF_COMPRESSED || !name)
			continue;
		err = add_code(reading, object, scn, &shdr, name);
		if (err)
			return err;
	}
	if (object->symbols && object->symbols->d_buf)
		object->symbol_count = object->symbols->d_size / sizeof(Elf64_Sym);
	return 0;
}

static Elf64_Sym symbol_at(const struct object *object, size_t index)
{
	Elf64_Sym sym;

	memcpy(&sym, (const char *)object->symbols->d_buf + index * sizeof(sym), sizeof(sym));
	return sym;
}

/* NULL: none, or none that can be taken. */
static const char *symbol_name(struct reading *reading, const struct object *object,
			       const Elf64_Sym *sym)
{
	const char *name = elf_strptr(object->elf, object->strings, sym->st_name);
	size_t length = name ? strnlen(name, NAME_MAX_LENGTH + 1) : 0;

	reading->name_bytes += length;
	return length && length <= NAME_MAX_LENGTH ? name : NULL;
}

/* All functions of an object, in the order of its symbols: sort_functions() puts them in place. */
static int read_functions(struct reading *reading, const struct object *object)
{
	struct archive *archive = reading->archive;

	for (size_t i = 0; i < object->symbol_count; i++) {
		const Elf64_Sym sym = symbol_at(object, i);
		unsigned char bind = GELF_ST_BIND(sym.st_info);
		const struct archive_section *section;
		const char *name;
		int err;

		if (GELF_ST_TYPE(sym.st_info) != STT_FUNC ||
		    (bind != STB_GLOBAL && bind != STB_WEAK && bind != STB_GNU_UNIQUE) ||
		    sym.st_shndx >= object->section_count ||
		    object->code[sym.st_shndx] == ARCHIVE_NONE)
			continue;
		section = &archive->sections[object->code[sym.st_shndx]];
		name = symbol_name(reading, object, &sym);
		if (!name || !sym.st_size || sym.st_value >= section->size ||
		    sym.st_size > section->size - sym.st_value)
			continue;
		if (reading->name_bytes > CODE_MAX_BYTES)
			return -E2BIG;
		err = reserve(&archive->functions, &reading->capacities[2], archive->function_count,
			      sizeof(*archive->functions));
		if (err)
			return err;
		archive->functions[archive->function_count] = (struct archive_function){
			.section = object->code[sym.st_shndx],
			.offset = sym.st_value,
			.size = sym.st_size,
			.hidden = GELF_ST_VISIBILITY(sym.st_other) != STV_DEFAULT,
			.weak = bind == STB_WEAK,
		};
		err = add_name(reading, name, &archive->functions[archive->function_count].name);
		if (err)
			return err;
		archive->function_count++;
	}
	return 0;
}

/* What a relocation refers to. Returns 1 if it tells nothing that could be compared. */
static int find_key(struct reading *reading, const struct object *object, size_t symbol,
		    struct archive_reference *reference)
{
	const char *name;
	Elf64_Sym sym;

	if (!symbol || symbol >= object->symbol_count)
		return 1;
	sym = symbol_at(object, symbol);
	if (GELF_ST_TYPE(sym.st_info) == STT_TLS)
		return 1;
	if (GELF_ST_BIND(sym.st_info) == STB_LOCAL) {
		if (sym.st_shndx == SHN_UNDEF || sym.st_shndx >= object->section_count ||
		    object->movable[sym.st_shndx])
			return 1;
		reference->key = object->first_key + sym.st_shndx;
		reference->addend += sym.st_value;
		return 0;
	}
	/* Linkers differ in what they make of a weak symbol that nothing defines. */
	if (sym.st_shndx == SHN_UNDEF && GELF_ST_BIND(sym.st_info) == STB_WEAK)
		return 1;
	name = symbol_name(reading, object, &sym);
	return name ? add_name(reading, name, &reference->key) : 1;
}

static int read_reference(struct reading *reading, const struct object *object, uint32_t index,
			  const Elf64_Rela *rela)
{
	struct archive *archive = reading->archive;
	struct archive_section *section = &archive->sections[index];
	uint32_t type = ELF64_R_TYPE(rela->r_info);
	struct relocation_span span =
		relocation_writes(type, section->bytes, section->size, rela->r_offset);
	struct archive_reference reference = {
		.kind = relocation_kind(type),
		.offset = (uint32_t)rela->r_offset,
		.addend = rela->r_addend,
	};
	int err;

	if (rela->r_offset >= section->size)
		return 0;
	memset(section->mask + span.start, 0, span.end - span.start);
	if (reference.kind == RELOCATION_OPAQUE ||
	    relocation_field_size(reference.kind) > section->size - rela->r_offset)
		return 0;
	err = find_key(reading, object, ELF64_R_SYM(rela->r_info), &reference);
	if (err)
		return err < 0 ? err : 0;
	if (reading->name_bytes > CODE_MAX_BYTES)
		return -E2BIG;
	err = reserve(&archive->references, &reading->capacities[3], archive->reference_count,
		      sizeof(*archive->references));
	if (err)
		return err;
	archive->references[archive->reference_count++] = reference;
	section->reference_count++;
	return 0;
}

static int compare_references(const void *a, const void *b)
{
	const struct archive_reference *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int read_relocations(struct reading *reading, const struct object *object)
{
	struct archive *archive = reading->archive;
	Elf_Scn *scn = NULL;

	while ((scn = elf_nextscn(object->elf, scn))) {
		struct archive_section *section;
		const Elf_Data *data;
		GElf_Shdr shdr;
		uint32_t index;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_RELA ||
		    shdr.sh_info >= object->section_count)
			continue;
		index = object->code[shdr.sh_info];
		data = index == ARCHIVE_NONE ? NULL : elf_getdata(scn, NULL);
		/* A second table for one section is no compiler's. */
		if (!data || !data->d_buf || archive->sections[index].reference_count)
			continue;
		section = &archive->sections[index];
		section->first_reference = archive->reference_count;
		for (size_t i = 0; i < data->d_size / sizeof(Elf64_Rela); i++) {
			Elf64_Rela rela;
			int err;

			memcpy(&rela, (const char *)data->d_buf + i * sizeof(rela), sizeof(rela));
			err = read_reference(reading, object, index, &rela);
			if (err)
				return err;
		}
		if (section->reference_count)
			qsort(archive->references + section->first_reference,
			      section->reference_count, sizeof(*archive->references),
			      compare_references);
	}
	return 0;
}

/* Takes the Elf over. What is no object of ours is passed over. */
static int read_object(struct reading *reading, Elf *elf)
{
	struct object object __attribute__((cleanup(object_fini))) = {.elf = elf};
	GElf_Ehdr ehdr;
	int err;

	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &ehdr) || ehdr.e_type != ET_REL ||
	    ehdr.e_machine != EM_X86_64 || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB || elf_getshdrnum(elf, &object.section_count) ||
	    !object.section_count)
		return 0;
	if (object.section_count > ARCHIVE_MAX_ENTRIES ||
	    object.section_count > ARCHIVE_KEY_SECTION - 1 - reading->next_section_key)
		return -E2BIG;
	object.first_key = ARCHIVE_KEY_SECTION | reading->next_section_key;
	reading->next_section_key += object.section_count;
	object.code = malloc(object.section_count * sizeof(*object.code));
	object.movable = calloc(object.section_count, sizeof(*object.movable));
	if (!object.code || !object.movable)
		return -ENOMEM;
	for (size_t i = 0; i < object.section_count; i++)
		object.code[i] = ARCHIVE_NONE;
	err = read_sections(reading, &object);
	if (!err && object.symbol_count)
		err = read_functions(reading, &object);
	if (!err)
		err = read_relocations(reading, &object);
	reading->archive->member_count++;
	return err;
}

static int compare_functions(const void *a, const void *b)
{
	const struct archive_function *x = a, *y = b;

	if (x->section != y->section)
		return x->section < y->section ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->name < y->name ? -1 : x->name > y->name;
}

static void sort_functions(struct archive *archive)
{
	if (archive->function_count)
		qsort(archive->functions, archive->function_count, sizeof(*archive->functions),
		      compare_functions);
	for (uint32_t i = archive->function_count; i--;) {
		struct archive_function *function = &archive->functions[i];
		struct archive_section *section = &archive->sections[function->section];
		struct archive_name *name = &archive->names[function->name];

		section->first_function = i;
		section->function_count++;
		function->next_by_name = name->first_function;
		name->first_function = i;
	}
}

static int read_members(struct reading *reading, int fd, Elf *elf)
{
	Elf_Cmd command = ELF_C_READ;
	Elf *member;
	int err = 0;

	if (elf_kind(elf) != ELF_K_AR)
		return read_object(reading, elf_begin(fd, ELF_C_READ, elf));
	while (!err && command != ELF_C_NULL && (member = elf_begin(fd, command, elf))) {
		command = elf_next(member);
		err = read_object(reading, member);
	}
	return err;
}

static bool is_thin(int fd)
{
	static const char magic[] = "!<thin>\n";
	char start[sizeof(magic) - 1];

	return pread(fd, start, sizeof(start), 0) == sizeof(start) &&
	       !memcmp(start, magic, sizeof(start));
}

int archive_read(int fd, struct archive **ret)
{
	struct reading reading __attribute__((cleanup(reading_fini))) = {};
	struct stat st;
	Elf *elf;
	int err;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOEXEC;
	if (is_thin(fd))
		return -ENOTSUP;
	reading.archive = calloc(1, sizeof(*reading.archive));
	if (!reading.archive)
		return -ENOMEM;
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return -ENOEXEC;
	err = read_members(&reading, fd, elf);
	elf_end(elf);
	if (!err && !reading.archive->member_count)
		err = -ENOEXEC;
	if (err)
		return err;
	sort_functions(reading.archive);
	*ret = take_ptr(reading.archive);
	return 0;
}
