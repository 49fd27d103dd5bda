/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * PLT stubs, decoded instead of counted: linkers lay them out in different orders. A stub jumps
 * through a slot of the GOT, and the relocation of that slot names the function (x86-64 psABI,
 * "Procedure Linkage Table"):
 *
 *   [endbr64] [bnd] jmp *SLOT(%rip)          .plt, .plt.sec, .plt.got
 *   endbr64; push $INDEX; [bnd] jmp PLT0     .plt beside a .plt.sec: index into .rela.plt
 */
#include "elf/plt.h"

#include <errno.h>
#include <gelf.h>
#include <stdbool.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/cursor.h"

/* What one section of relocations, or of stubs, may have before it is taken for damage. */
#define RELOCATIONS_MAX_BYTES (64u << 20)
#define STUBS_MAX_BYTES	      (16u << 20)

struct slot {
	uint64_t address;
	uint64_t addend;
	uint32_t symbol;
	uint32_t index; /* in .rela.plt; UINT32_MAX: elsewhere */
};

struct finder {
	Elf *elf;
	struct slot *slots; /* by address */
	size_t slot_count;
	uint32_t *by_index; /* of .rela.plt; into slots */
	size_t index_count;
	const Elf_Data *symbols;
	size_t names_section;
	struct plt *plt;
	size_t capacity;
};

static const Elf_Data *bounded_data(Elf_Scn *scn, const GElf_Shdr *shdr, size_t max)
{
	const Elf_Data *data;

	if (shdr->sh_type == SHT_NOBITS || shdr->sh_size > max)
		return NULL;
	data = elf_rawdata(scn, NULL);
	return data && data->d_buf && data->d_size ? data : NULL;
}

static const char *section_name(Elf *elf, const GElf_Shdr *shdr)
{
	size_t index;
	const char *name =
		elf_getshdrstrndx(elf, &index) ? NULL : elf_strptr(elf, index, shdr->sh_name);

	return name ? name : "";
}

static int add_slots(struct finder *finder, const Elf_Data *data, bool is_plt)
{
	size_t count = data->d_size / sizeof(Elf64_Rela);
	struct cursor c = cursor_init(data->d_buf, count * sizeof(Elf64_Rela));
	struct slot *slots =
		reallocarray(finder->slots, finder->slot_count + count + 1, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	finder->slots = slots;
	for (size_t i = 0; i < count; i++) {
		uint64_t address = cursor_u64(&c), info = cursor_u64(&c), addend = cursor_u64(&c);
		uint32_t type = GELF_R_TYPE(info);

		if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT &&
		    type != R_X86_64_IRELATIVE)
			continue;
		slots[finder->slot_count++] = (struct slot){
			.address = address,
			.addend = addend,
			.symbol = type == R_X86_64_IRELATIVE ? 0 : GELF_R_SYM(info),
			.index = is_plt ? i : UINT32_MAX,
		};
		if (is_plt && finder->index_count <= i)
			finder->index_count = i + 1;
	}
	return 0;
}

static int compare_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static int load_slots(struct finder *finder)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	int err = 0;

	while (!err && (scn = elf_nextscn(finder->elf, scn))) {
		const Elf_Data *data;
		const char *name;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_RELA)
			continue;
		name = section_name(finder->elf, &shdr);
		if (strcmp(name, ".rela.plt") && strcmp(name, ".rela.dyn"))
			continue;
		data = bounded_data(scn, &shdr, RELOCATIONS_MAX_BYTES);
		if (data)
			err = add_slots(finder, data, !strcmp(name, ".rela.plt"));
	}
	if (err || !finder->slot_count)
		return err;
	qsort(finder->slots, finder->slot_count, sizeof(*finder->slots), compare_slots);
	finder->by_index = calloc(finder->index_count + 1, sizeof(*finder->by_index));
	if (!finder->by_index)
		return -ENOMEM;
	for (size_t i = 0; i < finder->index_count; i++)
		finder->by_index[i] = UINT32_MAX;
	for (size_t i = 0; i < finder->slot_count; i++) {
		if (finder->slots[i].index != UINT32_MAX)
			finder->by_index[finder->slots[i].index] = i;
	}
	return 0;
}

static void find_symbols(struct finder *finder)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(finder->elf, scn))) {
		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_DYNSYM)
			continue;
		finder->symbols = bounded_data(scn, &shdr, RELOCATIONS_MAX_BYTES);
		finder->names_section = shdr.sh_link;
		return;
	}
}

static const char *symbol_name(const struct finder *finder, uint32_t index)
{
	Elf64_Sym sym;
	const char *name;

	if (!finder->symbols || index >= finder->symbols->d_size / sizeof(sym))
		return NULL;
	memcpy(&sym, (const char *)finder->symbols->d_buf + index * sizeof(sym), sizeof(sym));
	name = elf_strptr(finder->elf, finder->names_section, sym.st_name);
	return name && *name ? name : NULL;
}

static const struct slot *slot_at(const struct finder *finder, uint64_t address)
{
	struct slot key = {.address = address};

	return bsearch(&key, finder->slots, finder->slot_count, sizeof(key), compare_slots);
}

/* The slot that the stub in these bytes stands for. */
static const struct slot *decode_stub(const struct finder *finder, const uint8_t *bytes,
				      size_t size, uint64_t vaddr)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	struct cursor c = cursor_init(bytes, size);
	uint8_t opcode;

	if (size >= sizeof(endbr64) && !memcmp(bytes, endbr64, sizeof(endbr64)))
		cursor_bytes(&c, sizeof(endbr64));
	opcode = cursor_u8(&c);
	if (opcode == 0xf2)
		opcode = cursor_u8(&c);
	if (opcode == 0xff && cursor_u8(&c) == 0x25) {
		int32_t displacement = cursor_u32(&c);

		return c.underflow ? NULL : slot_at(finder, vaddr + (c.pos - bytes) + displacement);
	}
	if (opcode == 0x68) {
		uint32_t index = cursor_u32(&c);

		if (!c.underflow && index < finder->index_count &&
		    finder->by_index[index] != UINT32_MAX)
			return &finder->slots[finder->by_index[index]];
	}
	return NULL;
}

static int add_stub(struct finder *finder, uint64_t start, uint64_t size, const struct slot *slot)
{
	struct plt *plt = finder->plt;
	struct plt_stub stub = {.start = start, .size = size};

	if (slot->symbol)
		stub.name = symbol_name(finder, slot->symbol);
	else
		stub.resolver = slot->addend;
	if (!stub.name && !stub.resolver)
		return 0;
	if (plt->count == finder->capacity) {
		size_t capacity = finder->capacity ? 2 * finder->capacity : 64;
		struct plt_stub *stubs = reallocarray(plt->stubs, capacity, sizeof(*stubs));

		if (!stubs)
			return -ENOMEM;
		plt->stubs = stubs;
		finder->capacity = capacity;
	}
	plt->stubs[plt->count++] = stub;
	return 0;
}

static int add_stubs(struct finder *finder, const Elf_Data *data, const GElf_Shdr *shdr)
{
	size_t step = shdr->sh_entsize == 8 ? 8 : 16;
	int err = 0;

	if (shdr->sh_addr > UINT64_MAX - data->d_size)
		return 0;
	for (size_t at = 0; at + step <= data->d_size && !err; at += step) {
		const uint8_t *bytes = (const uint8_t *)data->d_buf + at;
		const struct slot *slot = decode_stub(finder, bytes, step, shdr->sh_addr + at);

		if (slot)
			err = add_stub(finder, shdr->sh_addr + at, step, slot);
	}
	return err;
}

static int find_stubs(struct finder *finder)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	int err;

	err = load_slots(finder);
	if (err || !finder->slot_count)
		return err;
	find_symbols(finder);
	while (!err && (scn = elf_nextscn(finder->elf, scn))) {
		const Elf_Data *data;

		if (!gelf_getshdr(scn, &shdr) || !(shdr.sh_flags & SHF_EXECINSTR) ||
		    strncmp(section_name(finder->elf, &shdr), ".plt", 4))
			continue;
		data = bounded_data(scn, &shdr, STUBS_MAX_BYTES);
		if (data)
			err = add_stubs(finder, data, &shdr);
	}
	return err;
}

int plt_find(Elf *elf, struct plt *ret)
{
	struct plt plt = {};
	struct finder finder = {.elf = elf, .plt = &plt};
	int err;

	err = find_stubs(&finder);
	free(finder.slots);
	free(finder.by_index);
	if (err)
		free(plt.stubs);
	else
		*ret = plt;
	return err;
}
