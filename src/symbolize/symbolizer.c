/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames to names: file offset -> virtual address -> function symbol -> demangled name.
 *
 * Symbol tables are loaded at the first frame of their image. Names are kept once per symbol, and
 * frames point to them: a symbol's address in its symtab is its identity.
 */
#include "symbolize/symbolizer.h"

#include <errno.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "elf/symtab.h"
#include "symbolize/demangle.h"

struct image_entry {
	struct image *image;
	struct symtab *symtab; /* NULL: the image has none */
	UT_hash_handle hh;
};

struct name_entry {
	const struct symbol *symbol;
	char *name;
	struct symbolized_line line;
	UT_hash_handle hh;
};

struct frame_key {
	struct image *image;
	uint64_t offset;
};

struct frame_entry {
	struct frame_key key;
	struct symbolized_frame frame;
	UT_hash_handle hh;
};

struct symbolizer {
	struct image_entry *images;
	struct name_entry *names;
	struct frame_entry *frames;
};

int symbolizer_new(struct symbolizer **ret)
{
	struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));

	if (!symbolizer)
		return -ENOMEM;
	*ret = symbolizer;
	return 0;
}

void symbolizer_free(struct symbolizer *symbolizer)
{
	struct image_entry *image, *next_image;
	struct name_entry *name, *next_name;
	struct frame_entry *frame, *next_frame;

	if (!symbolizer)
		return;
	HASH_ITER (hh, symbolizer->frames, frame, next_frame) {
		HASH_DEL(symbolizer->frames, frame);
		free(frame);
	}
	HASH_ITER (hh, symbolizer->names, name, next_name) {
		HASH_DEL(symbolizer->names, name);
		free(name->name);
		free(name);
	}
	HASH_ITER (hh, symbolizer->images, image, next_image) {
		HASH_DEL(symbolizer->images, image);
		symtab_free(image->symtab);
		free(image);
	}
	free(symbolizer);
}

static int image_lookup(struct symbolizer *symbolizer, struct image *image,
			struct image_entry **ret)
{
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct image_entry *entry;

	HASH_FIND_PTR(symbolizer->images, &image, entry);
	if (entry) {
		*ret = entry;
		return 0;
	}
	/* Broken or missing tables make frames nameless, no more. */
	if (symtab_load(image, &symtab) == -ENOMEM)
		return -ENOMEM;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->image = image;
	HASH_ADD_PTR(symbolizer->images, image, entry);
	if (!entry->hh.tbl) {
		free(entry);
		return -ENOMEM;
	}
	entry->symtab = take_ptr(symtab);
	*ret = entry;
	return 0;
}

static int name_lookup(struct symbolizer *symbolizer, const struct symbol *symbol,
		       struct name_entry **ret)
{
	struct name_entry *entry;

	HASH_FIND_PTR(symbolizer->names, &symbol, entry);
	if (entry) {
		*ret = entry;
		return 0;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->symbol = symbol;
	entry->name = demangle(symbol->name);
	if (entry->name)
		HASH_ADD_PTR(symbolizer->names, symbol, entry);
	if (!entry->hh.tbl) {
		free(entry->name);
		free(entry);
		return -ENOMEM;
	}
	entry->line = (struct symbolized_line){.name = entry->name, .system_name = symbol->name};
	*ret = entry;
	return 0;
}

static int symbolize(struct symbolizer *symbolizer, struct image *image, uint64_t offset,
		     struct symbolized_frame *ret)
{
	struct image_entry *image_entry;
	const struct symbol *symbol = NULL;
	struct name_entry *name;
	uint64_t vaddr;
	int err;

	*ret = (struct symbolized_frame){};
	err = image_lookup(symbolizer, image, &image_entry);
	if (err)
		return err;
	if (image_entry->symtab && !image_offset_to_vaddr(image, offset, &vaddr))
		symbol = symtab_lookup(image_entry->symtab, vaddr);
	if (!symbol)
		return 0;
	err = name_lookup(symbolizer, symbol, &name);
	if (err)
		return err;
	*ret = (struct symbolized_frame){.lines = &name->line, .line_count = 1};
	return 0;
}

int symbolizer_lookup(struct symbolizer *symbolizer, struct image *image, uint64_t offset,
		      struct symbolized_frame *ret)
{
	struct frame_key key = {image, offset};
	struct frame_entry *entry;
	int err;

	HASH_FIND(hh, symbolizer->frames, &key, sizeof(key), entry);
	if (entry) {
		*ret = entry->frame;
		return 0;
	}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->key = key;
	err = symbolize(symbolizer, image, offset, &entry->frame);
	if (!err) {
		HASH_ADD(hh, symbolizer->frames, key, sizeof(key), entry);
		if (!entry->hh.tbl)
			err = -ENOMEM;
	}
	if (err) {
		free(entry);
		return err;
	}
	*ret = entry->frame;
	return 0;
}
