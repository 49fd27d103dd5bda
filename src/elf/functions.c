/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/functions.h"

#include <gelf.h>
#include <string.h>

#include "util/cursor.h"

/* DW_EH_PE encodings that linkers write: pcrel|sdata4, udata4, datarel|sdata4. */
static struct functions parse(struct image *image, const GElf_Phdr *phdr)
{
	size_t size;
	const uint8_t *bytes = image_bytes(image, phdr->p_vaddr, phdr->p_filesz, &size);
	struct functions functions = {.base = phdr->p_vaddr};
	struct cursor c;

	if (!bytes)
		return functions;
	c = cursor_init(bytes, size);
	if (cursor_u8(&c) != 1 || cursor_u8(&c) != 0x1b || cursor_u8(&c) != 0x03 ||
	    cursor_u8(&c) != 0x3b)
		return functions;
	cursor_u32(&c); /* .eh_frame */
	functions.count = cursor_u32(&c);
	if (functions.count > cursor_left(&c) / 8)
		functions.count = cursor_left(&c) / 8;
	functions.table = cursor_bytes(&c, functions.count * 8);
	return functions;
}

struct functions functions_load(struct image *image)
{
	size_t count;

	if (elf_getphdrnum(image_elf(image), &count))
		count = 0;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;

		if (gelf_getphdr(image_elf(image), i, &phdr) && phdr.p_type == PT_GNU_EH_FRAME)
			return parse(image, &phdr);
	}
	return (struct functions){};
}

static uint64_t start_of(const struct functions *functions, size_t index)
{
	int32_t relative;

	memcpy(&relative, functions->table + index * 8, sizeof(relative));
	return functions->base + (uint64_t)(int64_t)relative;
}

bool functions_find(const struct functions *functions, uint64_t vaddr, uint64_t *ret)
{
	size_t low = 0, high = functions->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (start_of(functions, middle) <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return false;
	*ret = start_of(functions, low - 1);
	return true;
}

bool functions_begin(const struct functions *functions, uint64_t vaddr)
{
	uint64_t start;

	return functions_find(functions, vaddr, &start) && start == vaddr;
}
