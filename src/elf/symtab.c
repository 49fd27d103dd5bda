/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Function symbols of .symtab and .dynsym, merged and sorted by address.
 *
 * Symbols may nest and overlap. max_end[i] is the largest end among the entries 0 to i: a lookup
 * walks down from the last entry that begins at or before the address and stops as soon as no
 * earlier one can reach it.
 */
#include "elf/symtab.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

/* Whole-image symbols beyond this are no compiler's work. */
#define SYMBOLS_MAX (1u << 25)

struct entry {
	struct symbol symbol;
	uint64_t limit; /* end of its section */
	uint8_t rank;	/* by binding: 0 global, 1 weak, 2 local */
	bool hidden;	/* a version that is not the default one */
};

struct symtab {
	struct entry *entries;
	size_t count;
	size_t capacity;
	uint64_t *max_end;
	const struct entry **by_name;
	char **names; /* one block of names per table read */
	size_t names_count;
};

void symtab_free(struct symtab *symtab)
{
	if (!symtab)
		return;
	for (size_t i = 0; i < symtab->names_count; i++)
		free(symtab->names[i]);
	free(symtab->names);
	free(symtab->by_name);
	free(symtab->max_end);
	free(symtab->entries);
	free(symtab);
}

static int compare_uint(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = compare_uint(x->symbol.start, y->symbol.start);

	if (!order)
		order = x->rank - y->rank;
	if (!order)
		order = compare_uint(y->symbol.size, x->symbol.size);
	return order ? order : strcmp(x->symbol.name, y->symbol.name);
}

static int compare_by_name(const void *a, const void *b)
{
	const struct entry *x = *(const struct entry *const *)a;
	const struct entry *y = *(const struct entry *const *)b;
	int order = strcmp(x->symbol.name, y->symbol.name);

	if (!order)
		order = x->hidden - y->hidden;
	if (!order)
		order = x->rank - y->rank;
	return order ? order : compare_uint(x->symbol.start, y->symbol.start);
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

static uint64_t section_end(Elf *elf, size_t index)
{
	Elf_Scn *scn = index < SHN_LORESERVE ? elf_getscn(elf, index) : NULL;
	GElf_Shdr shdr;

	if (!scn || !gelf_getshdr(scn, &shdr) || shdr.sh_size > UINT64_MAX - shdr.sh_addr)
		return UINT64_MAX;
	return shdr.sh_addr + shdr.sh_size;
}

/* What one symbol table needs beside itself. */
struct table {
	const Elf_Data *symbols;
	const Elf_Data *versions; /* NULL: none */
	size_t count;
	char *names; /* copy of the string table, ends in 0 */
	size_t names_size;
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

static int entries_reserve(struct symtab *symtab, size_t more)
{
	struct entry *entries;
	size_t needed = symtab->count + more;

	if (needed > SYMBOLS_MAX)
		return -ENOEXEC;
	if (needed <= symtab->capacity)
		return 0;
	entries = realloc(symtab->entries, needed * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	symtab->entries = entries;
	symtab->capacity = needed;
	return 0;
}

static void add_symbol(struct symtab *symtab, Elf *elf, const struct table *table, size_t index)
{
	struct entry *entry = &symtab->entries[symtab->count];
	unsigned int type;
	char *name, *version;
	Elf64_Sym sym;

	memcpy(&sym, (const char *)table->symbols->d_buf + index * sizeof(sym), sizeof(sym));
	type = GELF_ST_TYPE(sym.st_info);
	if ((type != STT_FUNC && type != STT_GNU_IFUNC) || sym.st_shndx == SHN_UNDEF ||
	    !sym.st_value || sym.st_name >= table->names_size)
		return;
	name = table->names + sym.st_name;
	if (!*name)
		return;
	*entry = (struct entry){
		.symbol = {.name = name, .start = sym.st_value, .size = sym.st_size},
		.limit = section_end(elf, sym.st_shndx),
		.rank = binding_rank(sym.st_info),
		.hidden = version_is_hidden(table, index),
	};
	entry->symbol.ifunc = type == STT_GNU_IFUNC;
	if (entry->symbol.size > UINT64_MAX - entry->symbol.start)
		entry->symbol.size = UINT64_MAX - entry->symbol.start;
	/* .symtab spells versions out: name@@DEFAULT, name@HIDDEN. */
	version = strchr(name + 1, '@');
	if (version) {
		entry->hidden = version[1] != '@';
		*version = 0;
	}
	symtab->count++;
}

static int names_load(struct symtab *symtab, const Elf_Data *strings, struct table *table)
{
	char **names = realloc(symtab->names, (symtab->names_count + 1) * sizeof(*names));

	if (!names)
		return -ENOMEM;
	symtab->names = names;
	table->names = malloc(strings->d_size + 1);
	if (!table->names)
		return -ENOMEM;
	memcpy(table->names, strings->d_buf, strings->d_size);
	table->names[strings->d_size] = 0;
	table->names_size = strings->d_size;
	names[symtab->names_count++] = table->names;
	return 0;
}

static const Elf_Data *section_data(Elf_Scn *scn)
{
	const Elf_Data *data = scn ? elf_getdata(scn, NULL) : NULL;

	return data && data->d_buf && data->d_size ? data : NULL;
}

static const Elf_Data *versions_of(Elf *elf, size_t symbols_index)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_GNU_versym &&
		    shdr.sh_link == symbols_index)
			return section_data(scn);
	return NULL;
}

static int load_table(struct symtab *symtab, Elf *elf, Elf_Scn *scn, const GElf_Shdr *shdr)
{
	const Elf_Data *strings;
	struct table table = {.symbols = section_data(scn)};
	int err;

	/* A section without bytes (a separate debug file's, say) is an empty one. */
	if (!table.symbols)
		return 0;
	strings = section_data(elf_getscn(elf, shdr->sh_link));
	if (!strings)
		return -ENOEXEC;
	table.count = table.symbols->d_size / sizeof(Elf64_Sym);
	if (shdr->sh_type == SHT_DYNSYM)
		table.versions = versions_of(elf, elf_ndxscn(scn));
	err = entries_reserve(symtab, table.count);
	if (!err)
		err = names_load(symtab, strings, &table);
	for (size_t i = 1; !err && i < table.count; i++)
		add_symbol(symtab, elf, &table, i);
	return err;
}

/* The same symbol stands in .symtab and .dynsym; only one of the two may know that it is hidden. */
static void drop_duplicates(struct symtab *symtab)
{
	size_t kept = 0;

	for (size_t i = 0; i < symtab->count; i++) {
		struct entry *entry = &symtab->entries[i];
		struct entry *last = kept ? &symtab->entries[kept - 1] : NULL;

		if (last && !compare_entries(last, entry)) {
			last->hidden &= entry->hidden;
			continue;
		}
		symtab->entries[kept++] = *entry;
	}
	symtab->count = kept;
}

static int build_indexes(struct symtab *symtab)
{
	uint64_t max_end = 0;

	qsort(symtab->entries, symtab->count, sizeof(*symtab->entries), compare_entries);
	drop_duplicates(symtab);
	symtab->max_end = calloc(symtab->count, sizeof(*symtab->max_end));
	symtab->by_name = calloc(symtab->count, sizeof(*symtab->by_name));
	if (!symtab->max_end || !symtab->by_name)
		return -ENOMEM;
	for (size_t i = 0; i < symtab->count; i++) {
		const struct entry *entry = &symtab->entries[i];

		if (entry->symbol.start + entry->symbol.size > max_end)
			max_end = entry->symbol.start + entry->symbol.size;
		symtab->max_end[i] = max_end;
		symtab->by_name[i] = entry;
	}
	qsort(symtab->by_name, symtab->count, sizeof(*symtab->by_name), compare_by_name);
	return 0;
}

int symtab_load(struct image *image, struct symtab **ret)
{
	struct symtab *symtab CLEANUP(symtab) = calloc(1, sizeof(*symtab));
	Elf *elf = image_elf(image);
	Elf_Scn *scn = NULL;
	int err;

	if (!symtab)
		return -ENOMEM;
	while ((scn = elf_nextscn(elf, scn))) {
		GElf_Shdr shdr;

		if (!gelf_getshdr(scn, &shdr))
			return -ENOEXEC;
		if (shdr.sh_type != SHT_SYMTAB && shdr.sh_type != SHT_DYNSYM)
			continue;
		err = load_table(symtab, elf, scn, &shdr);
		if (err)
			return err;
	}
	if (!symtab->count)
		return -ENOENT;
	err = build_indexes(symtab);
	if (err)
		return err;
	*ret = take_ptr(symtab);
	return 0;
}

/* How many entries begin at or before vaddr. */
static size_t count_until(const struct symtab *symtab, uint64_t vaddr)
{
	size_t low = 0, high = symtab->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symtab->entries[middle].symbol.start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_better(const struct entry *a, const struct entry *b)
{
	if (!b || a->rank != b->rank)
		return !b || a->rank < b->rank;
	if (a->symbol.size != b->symbol.size)
		return a->symbol.size > b->symbol.size;
	return compare_entries(a, b) < 0;
}

/* The best of the symbols nearest below, if none of these says where it ends. */
static const struct entry *nearest_unsized(const struct symtab *symtab, size_t until,
					   uint64_t vaddr)
{
	const struct entry *best = NULL;
	uint64_t start = until ? symtab->entries[until - 1].symbol.start : 0;

	for (size_t i = until; i-- && symtab->entries[i].symbol.start == start;) {
		const struct entry *entry = &symtab->entries[i];

		if (entry->symbol.size || vaddr >= entry->limit)
			return NULL;
		if (is_better(entry, best))
			best = entry;
	}
	return best;
}

const struct symbol *symtab_lookup(const struct symtab *symtab, uint64_t vaddr)
{
	size_t until = count_until(symtab, vaddr);
	const struct entry *best = NULL;

	for (size_t i = until; i-- && symtab->max_end[i] > vaddr;) {
		const struct entry *entry = &symtab->entries[i];

		if (vaddr - entry->symbol.start < entry->symbol.size && is_better(entry, best))
			best = entry;
	}
	if (!best)
		best = nearest_unsized(symtab, until, vaddr);
	return best ? &best->symbol : NULL;
}

const struct symbol *symtab_find(const struct symtab *symtab, const char *name)
{
	size_t low = 0, high = symtab->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(symtab->by_name[middle]->symbol.name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == symtab->count || strcmp(symtab->by_name[low]->symbol.name, name))
		return NULL;
	return &symtab->by_name[low]->symbol;
}

int symtab_for_each(const struct symtab *symtab,
		    int (*func)(const struct symbol *symbol, void *context), void *context)
{
	int result = 0;

	for (size_t i = 0; !result && i < symtab->count; i++)
		result = func(&symtab->entries[i].symbol, context);
	return result;
}
