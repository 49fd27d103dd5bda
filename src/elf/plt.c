/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * PLT stubs, decoded instead of counted: linkers lay them out in different orders. A stub jumps
 * through a slot of the GOT, and the relocation of that slot names the function (x86-64 psABI,
 * "Procedure Linkage Table"):
 *
 *   [endbr64] [bnd] jmp *SLOT(%rip)          .plt, .plt.sec, .plt.got; once .plt.bnd
 *   endbr64; push $INDEX; [bnd] jmp PLT0     .plt beside a .plt.sec: index into .rela.plt
 */
#include "elf/plt.h"

#include <errno.h>
#include <gelf.h>
#include <stdbool.h>
#include <string.h>

#include "elf/section.h"
#include "elf/slots.h"
#include "util/cleanup.h"
#include "util/cursor.h"

/* What one section of stubs may have before it is taken for damage. */
#define STUBS_MAX_BYTES (16u << 20)

struct finder {
	Elf *elf;
	struct slots slots;
	uint32_t *by_index; /* of .rela.plt; into slots */
	size_t index_count;
	struct plt *plt;
	size_t capacity;
};

static int index_slots(struct finder *finder)
{
	for (size_t i = 0; i < finder->slots.count; i++) {
		uint32_t index = finder->slots.entries[i].index;

		if (index != SLOT_NOT_IN_PLT && finder->index_count <= index)
			finder->index_count = index + 1;
	}
	finder->by_index = calloc(finder->index_count + 1, sizeof(*finder->by_index));
	if (!finder->by_index)
		return -ENOMEM;
	for (size_t i = 0; i < finder->index_count; i++)
		finder->by_index[i] = UINT32_MAX;
	for (size_t i = 0; i < finder->slots.count; i++) {
		if (finder->slots.entries[i].index != SLOT_NOT_IN_PLT)
			finder->by_index[finder->slots.entries[i].index] = i;
	}
	return 0;
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

		return c.underflow
			       ? NULL
			       : slots_at(&finder->slots, vaddr + (c.pos - bytes) + displacement);
	}
	if (opcode == 0x68) {
		uint32_t index = cursor_u32(&c);

		if (!c.underflow && index < finder->index_count &&
		    finder->by_index[index] != UINT32_MAX)
			return &finder->slots.entries[finder->by_index[index]];
	}
	return NULL;
}

static int add_stub(struct finder *finder, uint64_t start, uint64_t size, const struct slot *slot)
{
	struct plt *plt = finder->plt;
	struct plt_stub stub = {
		.start = start,
		.size = size,
		.name = slot->name,
		.resolver = slot->resolver,
	};

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
	static const char *const sections[] = {".plt", ".plt.sec", ".plt.got", ".plt.bnd"};
	int err;

	err = slots_load(finder->elf, &finder->slots);
	if (err || !finder->slots.count)
		return err;
	err = index_slots(finder);
	for (size_t i = 0; i < ARRAY_SIZE(sections) && !err; i++) {
		const Elf_Data *data;
		GElf_Shdr shdr;
		Elf_Scn *scn = section_find(finder->elf, sections[i], &shdr);

		if (!scn || !(shdr.sh_flags & SHF_EXECINSTR))
			continue;
		if (shdr.sh_type == SHT_NOBITS || shdr.sh_size > STUBS_MAX_BYTES)
			continue;
		data = elf_rawdata(scn, NULL);
		if (data && data->d_buf && data->d_size)
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
	slots_fini(&finder.slots);
	free(finder.by_index);
	if (err)
		free(plt.stubs);
	else
		*ret = plt;
	return err;
}
