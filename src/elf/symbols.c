/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/symbols.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#define SECTIONS_MAX (1u << 20)

/* No demangler takes a longer one. */
#define NAME_MAX_LENGTH 65536u
/* Names may share their ends: without a bound, a small file has terabytes of them. */
#define SCANNED_MAX_BYTES (512ull << 20)

void symbols_fini(struct symbols *symbols)
{
	for (size_t i = 0; i < symbols->names_count; i++)
		free(symbols->names[i]);
	free(symbols->names);
	free(symbols->entries);
}

int symbols_reserve(struct symbols *symbols, size_t more)
{
	struct symbol_entry *entries;
	size_t needed = symbols->count + more;

	if (needed > SYMBOLS_MAX)
		return -ENOEXEC;
	if (needed <= symbols->capacity)
		return 0;
	entries = realloc(symbols->entries, needed * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	symbols->entries = entries;
	symbols->capacity = needed;
	return 0;
}

static uint8_t binding_rank(unsigned char info)
{
	switch (GELF_ST_BIND(info)) {
	case STB_GLOBAL:
	case STB_GNU_UNIQUE:
		return 0;
	case STB_WEAK:
		return 1;
	default:
		return 2;
	}
}

struct section {
	uint64_t end;
	bool code;
};

static int sections_load(Elf *elf, struct section **ret, size_t *ret_count)
{
	struct section *sections;
	Elf_Scn *scn = NULL;
	size_t count;

	if (elf_getshdrnum(elf, &count) || count > SECTIONS_MAX)
		return -ENOEXEC;
	sections = calloc(count + 1, sizeof(*sections));
	if (!sections)
		return -ENOMEM;
	while ((scn = elf_nextscn(elf, scn))) {
		size_t index = elf_ndxscn(scn);
		GElf_Shdr shdr;

		if (index >= count || !gelf_getshdr(scn, &shdr) ||
		    shdr.sh_size > UINT64_MAX - shdr.sh_addr)
			continue;
		sections[index].end = shdr.sh_addr + shdr.sh_size;
		sections[index].code = shdr.sh_flags & SHF_EXECINSTR;
	}
	*ret = sections;
	*ret_count = count;
	return 0;
}

/* What one symbol table needs beside itself. */
struct table {
	const Elf_Data *data;
	const Elf_Data *versions; /* NULL: none */
	size_t count;
	char *names; /* copy of the string table, ends in 0 */
	size_t names_size;
	const struct section *sections;
	size_t section_count;
};

static bool version_is_hidden(const struct table *table, size_t index)
{
	uint16_t version;

	if (!table->versions || (index + 1) * sizeof(version) > table->versions->d_size)
		return false;
	memcpy(&version, (const char *)table->versions->d_buf + index * sizeof(version),
	       sizeof(version));
	return version & 0x8000;
}

static bool is_wanted(const struct symbols *symbols, const struct table *table,
		      const Elf64_Sym *sym)
{
	unsigned int type = GELF_ST_TYPE(sym->st_info);

	if (sym->st_shndx == SHN_UNDEF || !sym->st_value || sym->st_name >= table->names_size)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return true;
	/* Assembly labels, where no function has the address. */
	return symbols->labels && type == STT_NOTYPE && sym->st_shndx < table->section_count &&
	       table->sections[sym->st_shndx].code;
}

static void add_symbol(struct symbols *symbols, const struct table *table, size_t index)
{
	struct symbol_entry *entry = &symbols->entries[symbols->count];
	char *name, *version;
	size_t length;
	Elf64_Sym sym;

	memcpy(&sym, (const char *)table->data->d_buf + index * sizeof(sym), sizeof(sym));
	if (!is_wanted(symbols, table, &sym))
		return;
	name = table->names + sym.st_name;
	length = strnlen(name, NAME_MAX_LENGTH + 1);
	symbols->scanned_bytes += length;
	if (!length || length > NAME_MAX_LENGTH)
		return;
	*entry = (struct symbol_entry){
		.symbol = {.name = name, .start = sym.st_value, .size = sym.st_size},
		.limit = sym.st_shndx < table->section_count ? table->sections[sym.st_shndx].end
							     : UINT64_MAX,
		.order = symbols->order++,
		.rank = binding_rank(sym.st_info),
		.hidden = version_is_hidden(table, index),
	};
	entry->symbol.ifunc = GELF_ST_TYPE(sym.st_info) == STT_GNU_IFUNC;
	if (GELF_ST_TYPE(sym.st_info) == STT_NOTYPE)
		entry->rank = 3;
	if (entry->symbol.size > UINT64_MAX - entry->symbol.start)
		entry->symbol.size = UINT64_MAX - entry->symbol.start;
	/* .symtab spells versions out: name@@DEFAULT, name@HIDDEN. */
	version = memchr(name + 1, '@', length - 1);
	if (version) {
		entry->hidden = version[1] != '@';
		*version = 0;
	}
	symbols->count++;
}

/* A block for names that the symtab owns. */
char *symbols_new_names(struct symbols *symbols, size_t size)
{
	char **names = realloc(symbols->names, (symbols->names_count + 1) * sizeof(*names));
	char *block;

	if (!names)
		return NULL;
	symbols->names = names;
	block = malloc(size);
	if (!block)
		return NULL;
	names[symbols->names_count++] = block;
	symbols->names_bytes += size;
	return block;
}

static int names_load(struct symbols *symbols, const Elf_Data *strings, struct table *table)
{
	table->names = symbols_new_names(symbols, strings->d_size + 1);
	if (!table->names)
		return -ENOMEM;
	memcpy(table->names, strings->d_buf, strings->d_size);
	table->names[strings->d_size] = 0;
	table->names_size = strings->d_size;
	return 0;
}

static const Elf_Data *section_data(Elf_Scn *scn, size_t max_bytes)
{
	const Elf_Data *data = NULL;
	GElf_Shdr shdr;

	/* Before libelf makes room for it. */
	if (scn && gelf_getshdr(scn, &shdr) && shdr.sh_size <= max_bytes)
		data = elf_getdata(scn, NULL);
	return data && data->d_buf && data->d_size ? data : NULL;
}

static const Elf_Data *versions_of(Elf *elf, size_t symbols_index)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_GNU_versym &&
		    shdr.sh_link == symbols_index)
			return section_data(scn, SYMBOLS_MAX * sizeof(uint16_t));
	return NULL;
}

static int load_table(struct symbols *symbols, Elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr,
		      struct table *table)
{
	const Elf_Data *strings;
	int err;

	/* A section without bytes (a separate debug file's, say) is an empty one. */
	if (shdr->sh_size > SYMBOLS_MAX * sizeof(Elf64_Sym))
		return -ENOEXEC;
	table->data = section_data(scn, SYMBOLS_MAX * sizeof(Elf64_Sym));
	if (!table->data)
		return 0;
	strings = section_data(elf_getscn(elf, shdr->sh_link), STRINGS_MAX_BYTES);
	if (!strings)
		return -ENOEXEC;
	table->count = table->data->d_size / sizeof(Elf64_Sym);
	table->versions = shdr->sh_type == SHT_DYNSYM ? versions_of(elf, elf_ndxscn(scn)) : NULL;
	err = symbols_reserve(symbols, table->count);
	if (!err)
		err = names_load(symbols, strings, table);
	for (size_t i = 1; !err && i < table->count; i++) {
		add_symbol(symbols, table, i);
		if (symbols->scanned_bytes > SCANNED_MAX_BYTES)
			return -ENOEXEC;
	}
	return err;
}

/* Adds the symbols of an image's table of one type; a second one is no linker's work. */
int symbols_add_tables(struct symbols *symbols, Elf *elf, uint32_t type)
{
	_cleanup_free_ struct section *sections = NULL;
	struct table table = {};
	Elf_Scn *scn = NULL;
	int err;

	err = sections_load(elf, &sections, &table.section_count);
	table.sections = sections;
	while (!err && (scn = elf_nextscn(elf, scn))) {
		GElf_Shdr shdr;

		if (!gelf_getshdr(scn, &shdr))
			return -ENOEXEC;
		if (shdr.sh_type == type)
			return load_table(symbols, elf, scn, &shdr, &table);
	}
	return err;
}
