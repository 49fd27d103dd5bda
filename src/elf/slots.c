/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/slots.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "elf/section.h"
#include "util/cursor.h"

/* What one section may have before it is taken for damage. */
#define SECTION_MAX_BYTES (64u << 20)

struct symbols {
	const Elf_Data *data;
	size_t names_section;
};

void slots_fini(struct slots *slots)
{
	free(slots->entries);
	*slots = (struct slots){};
}

static const Elf_Data *bounded_data(Elf_Scn *scn, const GElf_Shdr *shdr)
{
	const Elf_Data *data;

	if (shdr->sh_type == SHT_NOBITS || shdr->sh_size > SECTION_MAX_BYTES)
		return NULL;
	data = elf_rawdata(scn, NULL);
	return data && data->d_buf && data->d_size ? data : NULL;
}

/* The relocations of the first section of that name: a second one is no linker's work. */
static const Elf_Data *find_relocations(Elf *elf, const char *name)
{
	GElf_Shdr shdr;
	Elf_Scn *scn = section_find(elf, name, &shdr);

	return scn && shdr.sh_type == SHT_RELA ? bounded_data(scn, &shdr) : NULL;
}

static struct symbols find_symbols(Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(elf, scn))) {
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_DYNSYM)
			return (struct symbols){bounded_data(scn, &shdr), shdr.sh_link};
	}
	return (struct symbols){};
}

static const char *symbol_name(Elf *elf, const struct symbols *symbols, uint32_t index)
{
	Elf64_Sym sym;
	const char *name;

	if (!index || !symbols->data || index >= symbols->data->d_size / sizeof(sym))
		return NULL;
	memcpy(&sym, (const char *)symbols->data->d_buf + index * sizeof(sym), sizeof(sym));
	name = elf_strptr(elf, symbols->names_section, sym.st_name);
	return name && *name ? name : NULL;
}

static int add_section(Elf *elf, const struct symbols *symbols, const Elf_Data *data, bool is_plt,
		       struct slots *slots)
{
	size_t count = data->d_size / sizeof(Elf64_Rela);
	struct cursor c = cursor_init(data->d_buf, count * sizeof(Elf64_Rela));
	struct slot *entries =
		reallocarray(slots->entries, slots->count + count + 1, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	slots->entries = entries;
	for (size_t i = 0; i < count; i++) {
		uint64_t address = cursor_u64(&c), info = cursor_u64(&c), addend = cursor_u64(&c);
		uint32_t type = GELF_R_TYPE(info);
		struct slot slot = {
			.address = address,
			.index = is_plt ? i : SLOT_NOT_IN_PLT,
		};

		if (type == R_X86_64_IRELATIVE)
			slot.resolver = addend;
		else if (type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
			 (type == R_X86_64_64 && !addend))
			slot.name = symbol_name(elf, symbols, GELF_R_SYM(info));
		if (slot.name || slot.resolver)
			entries[slots->count++] = slot;
	}
	return 0;
}

static int compare_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

int slots_load(Elf *elf, struct slots *ret)
{
	const Elf_Data *plt = find_relocations(elf, ".rela.plt");
	const Elf_Data *others = find_relocations(elf, ".rela.dyn");
	struct symbols symbols = find_symbols(elf);
	struct slots slots = {};
	int err = 0;

	if (plt)
		err = add_section(elf, &symbols, plt, true, &slots);
	if (others && !err)
		err = add_section(elf, &symbols, others, false, &slots);
	if (err) {
		slots_fini(&slots);
		return err;
	}
	if (slots.count)
		qsort(slots.entries, slots.count, sizeof(*slots.entries), compare_slots);
	*ret = slots;
	return 0;
}

static bool find_relative(const Elf_Data *data, uint64_t address, uint64_t *ret)
{
	struct cursor c = cursor_init(data->d_buf, data->d_size);

	while (cursor_left(&c) >= sizeof(Elf64_Rela)) {
		uint64_t at = cursor_u64(&c), info = cursor_u64(&c), addend = cursor_u64(&c);

		if (at != address || GELF_R_TYPE(info) != R_X86_64_RELATIVE)
			continue;
		*ret = addend;
		return true;
	}
	return false;
}

bool slots_find_relative(Elf *elf, uint64_t address, uint64_t *ret)
{
	const Elf_Data *data = find_relocations(elf, ".rela.dyn");

	return data && find_relative(data, address, ret);
}

const struct slot *slots_at(const struct slots *slots, uint64_t address)
{
	struct slot key = {.address = address};

	if (!slots->count)
		return NULL;
	return bsearch(&key, slots->entries, slots->count, sizeof(key), compare_slots);
}
