/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/usdt.h"
#include "elf/section.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "util/cursor.h"

#define NOTE_TYPE      3
#define NOTES_MAX_SIZE (16u << 20)
/* Of one provider; a probe that is inlined has a note for each place. */
#define PROBES_MAX 4096

void usdt_fini(struct usdt *usdt)
{
	for (size_t i = 0; i < usdt->count; i++)
		free(usdt->entries[i].name);
	free(usdt->entries);
	*usdt = (struct usdt){};
}

/* The next string of a note, or NULL if it does not end in there. */
static const char *next_string(struct cursor *c)
{
	size_t length = strnlen((const char *)c->pos, cursor_left(c));

	return length < cursor_left(c) ? cursor_bytes(c, length + 1) : NULL;
}

static int add_probe(struct usdt *usdt, const char *name, const char *arguments, uint64_t vaddr,
		     uint64_t semaphore)
{
	size_t length = strlen(name) + 1;
	_cleanup_free_ char *names = malloc(length + strlen(arguments) + 1);
	struct usdt_probe probe = {.name = names, .vaddr = vaddr, .semaphore = semaphore};
	struct usdt_probe *entries;

	if (!names)
		return -ENOMEM;
	memcpy(names, name, length);
	strcpy(names + length, arguments);
	entries = reallocarray(usdt->entries, usdt->count + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	usdt->entries = entries;
	probe.arguments = names + length;
	entries[usdt->count++] = probe;
	take_ptr(names);
	return 0;
}

/* moved_to: where the base section is now, or 0. Returns 1 for a malformed note. */
static int read_note(struct cursor c, const char *wanted, uint64_t moved_to, struct usdt *usdt)
{
	uint64_t vaddr = cursor_u64(&c), base = cursor_u64(&c), semaphore = cursor_u64(&c);
	const char *provider = next_string(&c), *name = provider ? next_string(&c) : NULL;
	const char *arguments = name ? next_string(&c) : NULL;
	uint64_t moved = moved_to && base ? moved_to - base : 0;

	if (c.underflow || !arguments)
		return 1;
	if (strcmp(provider, wanted))
		return 0;
	return add_probe(usdt, name, arguments, vaddr + moved, semaphore ? semaphore + moved : 0);
}

static int read_notes(const Elf_Data *data, const char *provider, uint64_t moved_to,
		      struct usdt *usdt)
{
	struct cursor c = cursor_init(data->d_buf, data->d_size);
	int err = 0;

	while (!err && cursor_left(&c) && usdt->count < PROBES_MAX) {
		uint32_t name_size = cursor_u32(&c), size = cursor_u32(&c), type = cursor_u32(&c);
		const char *owner = cursor_bytes(&c, ((uint64_t)name_size + 3) & ~3ull);
		const void *bytes = cursor_bytes(&c, size);

		if (c.underflow)
			return 0;
		if (type == NOTE_TYPE && name_size == 8 && !memcmp(owner, "stapsdt", 8))
			err = read_note(cursor_init(bytes, size), provider, moved_to, usdt);
		/* What pads the last note may be missing. */
		cursor_bytes(&c, cursor_left(&c) < (-size & 3) ? cursor_left(&c) : -size & 3);
	}
	return err < 0 ? err : 0;
}

int usdt_load(struct image *image, const char *provider, struct usdt *ret)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	struct usdt usdt CLEANUP(usdt) = {};
	uint64_t moved_to = 0;
	const Elf_Data *data;
	GElf_Shdr shdr;
	Elf_Scn *scn;
	int err = 0;

	*ret = usdt;
	if (!elf)
		return 0;
	if (section_find(elf, ".stapsdt.base", &shdr))
		moved_to = shdr.sh_addr;
	scn = section_find(elf, ".note.stapsdt", &shdr);
	if (!scn || shdr.sh_type != SHT_NOTE || shdr.sh_size > NOTES_MAX_SIZE)
		return 0;
	data = elf_rawdata(scn, NULL);
	if (data && data->d_buf)
		err = read_notes(data, provider, moved_to, &usdt);
	if (err)
		return err;
	*ret = usdt;
	usdt = (struct usdt){};
	return 0;
}
