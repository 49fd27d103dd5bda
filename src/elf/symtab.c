/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Function symbols of several tables, merged and sorted by address.
 *
 * Symbols may nest and overlap: cover.c finds the best one at an address. One without a size
 * reaches to the next symbol or to the end of its section, and gives way to every other.
 */
#include "elf/symtab.h"

#include <errno.h>
#include <string.h>

#include "elf/plt.h"
#include "elf/symbols.h"
#include "util/cover.h"

/* Names of stubs are cut here. */
#define STUB_NAME_MAX 65536u

struct symtab {
	struct symbols symbols; /* sorted: see compare_entries() */
	struct cover *cover;
	const struct symbol_entry **by_name; /* NULL if loaded for names */
};

void symtab_free(struct symtab *symtab)
{
	if (!symtab)
		return;
	free(symtab->by_name);
	cover_free(symtab->cover);
	symbols_fini(&symtab->symbols);
	free(symtab);
}

static int compare_uint(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_entries(const void *a, const void *b)
{
	const struct symbol_entry *x = a, *y = b;
	int order = compare_uint(x->symbol.start, y->symbol.start);

	if (!order)
		order = x->rank - y->rank;
	if (!order)
		order = compare_uint(y->symbol.size, x->symbol.size);
	return order ? order : strcmp(x->symbol.name, y->symbol.name);
}

static int compare_by_name(const void *a, const void *b)
{
	const struct symbol_entry *x = *(const struct symbol_entry *const *)a;
	const struct symbol_entry *y = *(const struct symbol_entry *const *)b;
	int order = strcmp(x->symbol.name, y->symbol.name);

	if (!order)
		order = x->hidden - y->hidden;
	if (!order)
		order = x->rank - y->rank;
	return order ? order : compare_uint(x->symbol.start, y->symbol.start);
}

/* The same symbol stands in .symtab and .dynsym; only one of the two may know that it is hidden. */
static void drop_duplicates(struct symtab *symtab)
{
	size_t kept = 0;

	for (size_t i = 0; i < symtab->symbols.count; i++) {
		struct symbol_entry *entry = &symtab->symbols.entries[i];
		struct symbol_entry *last = kept ? &symtab->symbols.entries[kept - 1] : NULL;

		if (last && !compare_entries(last, entry)) {
			last->hidden &= entry->hidden;
			if (entry->order < last->order)
				last->order = entry->order;
			continue;
		}
		symtab->symbols.entries[kept++] = *entry;
	}
	symtab->symbols.count = kept;
}

/* The entry that begins at an address and sorts first; NULL if there is none. */
static const struct symbol_entry *entry_at(const struct symtab *symtab, uint64_t start)
{
	size_t low = 0, high = symtab->symbols.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symtab->symbols.entries[middle].symbol.start < start)
			low = middle + 1;
		else
			high = middle;
	}
	return low < symtab->symbols.count && symtab->symbols.entries[low].symbol.start == start
		       ? &symtab->symbols.entries[low]
		       : NULL;
}

/* What a stub calls: the function, or as binutils shows it, its resolver's address. */
static size_t stub_base(const struct symtab *symtab, const struct plt_stub *stub, char *address,
			size_t size, const char **ret)
{
	const struct symbol_entry *resolver = stub->name ? NULL : entry_at(symtab, stub->resolver);
	const char *at;
	size_t length;

	snprintf(address, size, "*ABS*+0x%llx", (unsigned long long)stub->resolver);
	*ret = stub->name ? stub->name : resolver ? resolver->symbol.name : address;
	length = strnlen(*ret, STUB_NAME_MAX);
	at = memchr(*ret, '@', length);
	return at ? (size_t)(at - *ret) : length;
}

/* Turns stubs into entries named "function@plt". */
static int add_stubs(struct symtab *symtab, const struct plt *plt)
{
	static const char suffix[] = "@plt";
	size_t bytes = 1, count = symtab->symbols.count;
	const char *base;
	char address[32], *names;
	int err;

	for (size_t i = 0; i < plt->count; i++)
		bytes += stub_base(symtab, &plt->stubs[i], address, sizeof(address), &base) +
			 sizeof(suffix);
	if (bytes > STRINGS_MAX_BYTES)
		return 0;
	err = symbols_reserve(&symtab->symbols, plt->count);
	if (err)
		return err;
	names = symbols_new_names(&symtab->symbols, bytes);
	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < plt->count; i++) {
		const struct plt_stub *stub = &plt->stubs[i];
		size_t length = stub_base(symtab, stub, address, sizeof(address), &base);

		/* The count grows at the end: until then stub_base() searches the sorted ones. */
		symtab->symbols.entries[count + i] = (struct symbol_entry){
			.symbol = {.name = names, .start = stub->start, .size = stub->size},
			.limit = stub->start + stub->size,
			.order = symtab->symbols.order++,
		};
		names += sprintf(names, "%.*s%s", (int)length, base, suffix) + 1;
	}
	symtab->symbols.count += plt->count;
	qsort(symtab->symbols.entries, symtab->symbols.count, sizeof(*symtab->symbols.entries),
	      compare_entries);
	return 0;
}

static bool is_better(const void *arg, uint32_t a, uint32_t b)
{
	const struct symbol_entry *entries = arg, *x = &entries[a], *y = &entries[b];

	if (!x->symbol.size != !y->symbol.size)
		return x->symbol.size;
	if (x->rank != y->rank)
		return x->rank < y->rank;
	if (x->symbol.size != y->symbol.size)
		return x->symbol.size > y->symbol.size;
	return x->order < y->order;
}

static int build_cover(struct symtab *symtab)
{
	_cleanup_free_ struct cover_range *ranges =
		calloc(symtab->symbols.count + 1, sizeof(*ranges));
	uint64_t next = UINT64_MAX;
	bool sized = false;

	if (!ranges)
		return -ENOMEM;
	for (size_t i = symtab->symbols.count; i--;) {
		const struct symbol_entry *entry = &symtab->symbols.entries[i];
		const struct symbol *symbol = &entry->symbol;

		ranges[i].start = symbol->start;
		ranges[i].end = symbol->start + symbol->size;
		if (!symbol->size)
			ranges[i].end = next < entry->limit ? next : entry->limit;
		if (i && symtab->symbols.entries[i - 1].symbol.start != symbol->start)
			next = symbol->start;
	}
	/* Where a function says how long it is, a label at its start is no longer. */
	for (size_t i = 0; i < symtab->symbols.count; i++) {
		const struct symbol *symbol = &symtab->symbols.entries[i].symbol;

		if (!i || symtab->symbols.entries[i - 1].symbol.start != symbol->start) {
			sized = false;
			for (size_t j = i; j < symtab->symbols.count && !sized &&
					   symtab->symbols.entries[j].symbol.start == symbol->start;
			     j++)
				sized = symtab->symbols.entries[j].symbol.size;
		}
		if (sized && !symbol->size)
			ranges[i].end = ranges[i].start;
	}
	return cover_build(ranges, symtab->symbols.count, is_better, symtab->symbols.entries,
			   &symtab->cover);
}

static int build_by_name(struct symtab *symtab)
{
	symtab->by_name = calloc(symtab->symbols.count, sizeof(*symtab->by_name));
	if (!symtab->by_name)
		return -ENOMEM;
	for (size_t i = 0; i < symtab->symbols.count; i++)
		symtab->by_name[i] = &symtab->symbols.entries[i];
	qsort(symtab->by_name, symtab->symbols.count, sizeof(*symtab->by_name), compare_by_name);
	return 0;
}

/* Damage in one place leaves the symbols of the others. */
static int add_image(struct symtab *symtab, struct image *image, uint32_t type, int *damage)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	int err = elf ? symbols_add_tables(&symtab->symbols, elf, type) : -ENOMEM;

	if (err == -ENOEXEC) {
		*damage = err;
		err = 0;
	}
	return err;
}

static int add_plt(struct symtab *symtab, struct image *image)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	struct plt plt = {};
	int err = elf ? plt_find(elf, &plt) : -ENOMEM;

	if (!err && plt.count)
		err = add_stubs(symtab, &plt);
	free(plt.stubs);
	return err == -ENOEXEC ? 0 : err;
}

static int load(struct symtab *symtab, struct image *image, struct image *const *others,
		size_t other_count, int *damage)
{
	int err = add_image(symtab, image, SHT_SYMTAB, damage);

	for (size_t i = 0; i < other_count && !err; i++)
		err = add_image(symtab, others[i], SHT_SYMTAB, damage);
	if (!err)
		err = add_image(symtab, image, SHT_DYNSYM, damage);
	if (err)
		return err;
	if (symtab->symbols.count)
		qsort(symtab->symbols.entries, symtab->symbols.count,
		      sizeof(*symtab->symbols.entries), compare_entries);
	drop_duplicates(symtab);
	if (symtab->symbols.labels)
		err = add_plt(symtab, image);
	if (!err && !symtab->symbols.count)
		err = *damage ? *damage : -ENOENT;
	if (!err)
		err = build_cover(symtab);
	return err;
}

int symtab_load(struct image *image, struct symtab **ret)
{
	struct symtab *symtab CLEANUP(symtab) = calloc(1, sizeof(*symtab));
	int err, damage = 0;

	if (!symtab)
		return -ENOMEM;
	err = load(symtab, image, NULL, 0, &damage);
	if (!err)
		err = damage ? damage : build_by_name(symtab);
	if (err)
		return err;
	*ret = take_ptr(symtab);
	return 0;
}

int symtab_load_names(struct image *image, struct image *const *others, size_t other_count,
		      struct symtab **ret)
{
	struct symtab *symtab CLEANUP(symtab) = calloc(1, sizeof(*symtab));
	int err, damage = 0;

	if (!symtab)
		return -ENOMEM;
	symtab->symbols.labels = true;
	err = load(symtab, image, others, other_count, &damage);
	if (err)
		return err;
	*ret = take_ptr(symtab);
	return 0;
}

size_t symtab_bytes(const struct symtab *symtab)
{
	return sizeof(*symtab) + symtab->symbols.capacity * sizeof(*symtab->symbols.entries) +
	       symtab->symbols.names_bytes + cover_bytes(symtab->cover);
}

const struct symbol *symtab_lookup(const struct symtab *symtab, uint64_t vaddr)
{
	uint32_t index = cover_find(symtab->cover, vaddr);

	return index == COVER_NONE ? NULL : &symtab->symbols.entries[index].symbol;
}

const struct symbol *symtab_find(const struct symtab *symtab, const char *name)
{
	size_t low = 0, high = symtab->by_name ? symtab->symbols.count : 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(symtab->by_name[middle]->symbol.name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (!symtab->by_name || low == symtab->symbols.count ||
	    strcmp(symtab->by_name[low]->symbol.name, name))
		return NULL;
	return &symtab->by_name[low]->symbol;
}

int symtab_for_each(const struct symtab *symtab,
		    int (*func)(const struct symbol *symbol, void *context), void *context)
{
	int result = 0;

	for (size_t i = 0; !result && i < symtab->symbols.count; i++)
		result = func(&symtab->symbols.entries[i].symbol, context);
	return result;
}
