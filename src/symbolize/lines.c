/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Address -> unit -> function and inlined calls -> files and lines.
 *
 * The ranges of all units are read once, from their first entries. .debug_aranges would be the
 * table for it, but clang writes none, and in a program with parts by both it is no help to know
 * some. What is built for a unit is kept while it is small in sum: the unit not asked for the
 * longest is dropped first.
 */
#include "symbolize/lines.h"

#include <dwarf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "symbolize/dwarf_unit.h"
#include "symbolize/inlines.h"

/* About half a second, and about five: see work.h. */
#define MAX_WORK_PER_LOOKUP ((uint64_t)1 << 25)
#define MAX_WORK_PER_IMAGE  ((uint64_t)1 << 28)
/* Of units read; past it, the one not used for the longest is dropped. */
#define CACHE_BYTES ((size_t)64 << 20)
/* Paths, and names from split files. */
#define MAX_STRING_BYTES ((size_t)64 << 20)

struct string_entry {
	UT_hash_handle hh;
	char text[];
};

/* A unit in the main file. */
struct unit_slot {
	Dwarf_Die skeleton;
	uint64_t split_id;
	uint16_t version;
	bool is_skeleton;
	struct loaded_unit *loaded; /* NULL: not asked for yet, or dropped */
	uint64_t last_use;
};

struct loaded_unit {
	struct dwarf_unit unit;
	struct inlines inlines;
	struct line_table *table;	/* NULL: it has none that can be read */
	struct line_table *split_files; /* the files of a split unit's own table, without rows */
	size_t bytes;
};

struct lines {
	struct dwarf_file *file;
	struct dwarf_file *package; /* .dwp; NULL if there is none */
	struct dwarf_place place;   /* owned */
	struct unit_slot *slots;
	size_t slot_count;
	struct pcmap map; /* of slots */
	size_t bytes;	  /* of all loaded units */
	uint64_t clock;
	uint64_t work_left;
	struct string_entry *strings;
	size_t string_bytes;
	struct inline_call calls[INLINES_MAX_DEPTH];
	struct line_frame frames[INLINES_MAX_DEPTH];
};

static void loaded_unit_free(struct loaded_unit *loaded)
{
	if (!loaded)
		return;
	line_table_free(loaded->table);
	line_table_free(loaded->split_files);
	inlines_fini(&loaded->inlines);
	dwarf_unit_fini(&loaded->unit);
	free(loaded);
}
DEFINE_CLEANUP(loaded_unit, struct loaded_unit *, loaded_unit_free)

void lines_close(struct lines *lines)
{
	struct string_entry *string, *next;

	if (!lines)
		return;
	HASH_ITER (hh, lines->strings, string, next) {
		HASH_DEL(lines->strings, string);
		free(string);
	}
	for (size_t i = 0; i < lines->slot_count; i++)
		loaded_unit_free(lines->slots[i].loaded);
	free(lines->slots);
	pcmap_fini(&lines->map);
	dwarf_file_close(lines->package);
	dwarf_file_close(lines->file);
	free((char *)lines->place.path);
	if (lines->place.root_fd >= 0)
		close(lines->place.root_fd);
	free(lines);
}

size_t lines_bytes(const struct lines *lines)
{
	return lines->file->size + (lines->package ? lines->package->size : 0) + lines->bytes +
	       lines->string_bytes + lines->slot_count * sizeof(*lines->slots) +
	       lines->map.capacity * sizeof(*lines->map.entries);
}

uint64_t lines_work_left(const struct lines *lines)
{
	return lines->work_left;
}

void lines_limit_work(struct lines *lines, uint64_t left)
{
	if (left < lines->work_left)
		lines->work_left = left;
}

/* The one copy of a string. */
static int intern(struct lines *lines, const char *text, const char **ret)
{
	size_t length = strlen(text);
	struct string_entry *entry;

	HASH_FIND(hh, lines->strings, text, length, entry);
	if (entry) {
		*ret = entry->text;
		return 0;
	}
	if (length + sizeof(*entry) > MAX_STRING_BYTES - lines->string_bytes)
		return -E2BIG;
	entry = malloc(sizeof(*entry) + length + 1);
	if (!entry)
		return -ENOMEM;
	memcpy(entry->text, text, length + 1);
	HASH_ADD(hh, lines->strings, text, length, entry);
	if (!entry->hh.tbl) {
		free(entry);
		return -ENOMEM;
	}
	lines->string_bytes += length + sizeof(*entry);
	*ret = entry->text;
	return 0;
}

struct indexing {
	struct lines *lines;
	size_t slot;
};

static int add_range(void *arg, uint64_t low, uint64_t high)
{
	struct indexing *indexing = arg;

	return pcmap_add(&indexing->lines->map, low, high, indexing->slot);
}

static int add_slot(struct lines *lines, const struct unit_slot *slot, struct work *work)
{
	struct indexing indexing = {lines, lines->slot_count};
	struct dwarf_unit unit;
	Dwarf_Die skeleton = slot->skeleton;

	if (!(lines->slot_count & (lines->slot_count - 1))) {
		struct unit_slot *slots =
			reallocarray(lines->slots, lines->slot_count ? 2 * lines->slot_count : 1,
				     sizeof(*slots));

		if (!slots)
			return -ENOMEM;
		lines->slots = slots;
	}
	lines->slots[lines->slot_count++] = *slot;
	dwarf_unit_init(&unit, lines->file, &skeleton, slot->version);
	return dwarf_unit_ranges(&unit, &skeleton, work, add_range, &indexing);
}

/* Units without code, types and what dwz has collected, have no ranges. */
static int index_units(struct lines *lines, struct work *work)
{
	struct unit_slot slot = {};
	Dwarf_CU *cu = NULL;
	uint8_t type, address_size;
	int err = 0;

	while (!err && dwarf_get_units(lines->file->dwarf, cu, &cu, NULL, NULL, &slot.skeleton,
				       NULL) == 0) {
		if (!work_take(work, 1))
			return -E2BIG;
		if (dwarf_cu_info(cu, &slot.version, &type, NULL, NULL, &slot.split_id,
				  &address_size, NULL))
			continue;
		slot.is_skeleton = type == DW_UT_skeleton;
		if (address_size == 8 && (type == DW_UT_compile || slot.is_skeleton))
			err = add_slot(lines, &slot, work);
	}
	pcmap_sort(&lines->map);
	return err;
}

/* The package of split units lies beside the file. */
static int open_package(struct lines *lines)
{
	char path[PATH_MAX];
	int fd, err;

	if (snprintf(path, sizeof(path), "%s.dwp", lines->place.path) >= (int)sizeof(path))
		return 0;
	fd = dwarf_file_open_path(&lines->place, path);
	if (fd < 0)
		return 0;
	err = dwarf_file_open_split(fd, &lines->package);
	return err == -ENOMEM ? err : 0;
}

int lines_open_at(struct image *image, int root_fd, struct lines **ret)
{
	struct lines *lines CLEANUP(lines) = calloc(1, sizeof(*lines));
	struct work work = {MAX_WORK_PER_LOOKUP};
	int err;

	if (!lines)
		return -ENOMEM;
	lines->place.root_fd = -1;
	lines->place.path = strdup(image_path(image));
	if (!lines->place.path)
		return -ENOMEM;
	if (root_fd >= 0)
		lines->place.root_fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
	lines->work_left = MAX_WORK_PER_IMAGE;
	err = dwarf_file_open(image_fd(image), &lines->place, &lines->file);
	if (!err)
		err = index_units(lines, &work);
	if (!err)
		err = open_package(lines);
	if (err)
		return err;
	*ret = take_ptr(lines);
	return 0;
}

int lines_open(struct image *image, struct lines **ret)
{
	return lines_open_at(image, -1, ret);
}

static size_t loaded_bytes(const struct loaded_unit *loaded)
{
	return sizeof(*loaded) + (loaded->table ? line_table_bytes(loaded->table) : 0) +
	       (loaded->split_files ? line_table_bytes(loaded->split_files) : 0) +
	       loaded->inlines.functions.capacity * sizeof(struct pcmap_entry) +
	       (loaded->unit.split ? 2 * loaded->unit.split->size : 0);
}

/* Drops units until the rest fits, but never the one in use. */
static void shrink(struct lines *lines, const struct unit_slot *used)
{
	while (lines->bytes > CACHE_BYTES) {
		struct unit_slot *oldest = NULL;

		for (size_t i = 0; i < lines->slot_count; i++) {
			struct unit_slot *slot = &lines->slots[i];

			if (slot->loaded && slot != used &&
			    (!oldest || slot->last_use < oldest->last_use))
				oldest = slot;
		}
		if (!oldest)
			return;
		lines->bytes -= oldest->loaded->bytes;
		loaded_unit_free(take_ptr(oldest->loaded));
	}
}

static void account(struct lines *lines, struct unit_slot *slot)
{
	lines->bytes -= slot->loaded->bytes;
	slot->loaded->bytes = loaded_bytes(slot->loaded);
	lines->bytes += slot->loaded->bytes;
	slot->last_use = ++lines->clock;
	shrink(lines, slot);
}

/* A unit without a readable table has functions all the same. */
static int ignore_broken(int err)
{
	return err == -EBADMSG ? 0 : err;
}

static int read_tables(struct loaded_unit *loaded, struct work *work)
{
	struct dwarf_unit *unit = &loaded->unit;
	const struct line_section *sections = unit->main->sections;
	struct line_source source = {
		.line = sections[DWARF_SECTION_line],
		.line_str = sections[DWARF_SECTION_line_str],
		.str = sections[DWARF_SECTION_str],
		.comp_dir = dwarf_unit_string(unit, &unit->skeleton, DW_AT_comp_dir),
	};
	int err = 0;

	if (dwarf_unit_offset(unit, &unit->skeleton, DW_AT_stmt_list, &source.offset))
		err = ignore_broken(line_table_read(&source, true, work, &loaded->table));
	if (err || !unit->split || !unit->split->sections[DWARF_SECTION_line].data)
		return err;
	sections = unit->split->sections;
	source.line = sections[DWARF_SECTION_line];
	source.line_str = sections[DWARF_SECTION_line_str];
	source.str = sections[DWARF_SECTION_str];
	source.offset = 0;
	return ignore_broken(line_table_read(&source, false, work, &loaded->split_files));
}

static int load_unit(struct lines *lines, struct unit_slot *slot, struct work *work)
{
	struct loaded_unit *loaded CLEANUP(loaded_unit) = NULL;
	int err = 0;

	if (slot->loaded)
		return 0;
	loaded = calloc(1, sizeof(*loaded));
	if (!loaded)
		return -ENOMEM;
	dwarf_unit_init(&loaded->unit, lines->file, &slot->skeleton, slot->version);
	if (slot->is_skeleton)
		err = dwarf_unit_open_split(&loaded->unit, slot->split_id, &lines->place,
					    lines->package, work);
	if (!err)
		err = read_tables(loaded, work);
	if (err)
		return err;
	slot->loaded = take_ptr(loaded);
	account(lines, slot);
	return 0;
}

static int set_path(struct lines *lines, const struct line_table *table, uint64_t file,
		    const char **ret)
{
	char path[PATH_MAX];

	*ret = NULL;
	if (!table || !line_table_path(table, file, path, sizeof(path)))
		return 0;
	return intern(lines, path, ret);
}

/* A line belongs to the call's caller: it is that of the frame after it. */
static int set_frames(struct lines *lines, const struct loaded_unit *loaded, uint64_t addr,
		      size_t count)
{
	const struct line_table *files = loaded->split_files ? loaded->split_files : loaded->table;
	uint64_t file = 0, line = 0;
	int err = 0;

	memset(lines->frames, 0, (count ? count : 1) * sizeof(*lines->frames));
	if (loaded->table && line_table_lookup(loaded->table, addr, &file, &line)) {
		lines->frames[0].line = line;
		err = set_path(lines, loaded->table, file, &lines->frames[0].filename);
	}
	for (size_t i = 0; i < count && !err; i++) {
		const struct inline_call *call = &lines->calls[i];
		struct line_frame *frame = &lines->frames[i];

		frame->name = call->name;
		frame->start_line = call->start_line <= INT32_MAX ? call->start_line : 0;
		/* A split file's strings go with it. */
		if (call->name && loaded->unit.split)
			err = intern(lines, call->name, &frame->name);
		if (i + 1 == count || err)
			break;
		frame[1].line = call->call_line <= INT32_MAX ? call->call_line : 0;
		err = set_path(lines, files, call->call_file, &frame[1].filename);
	}
	return err;
}

/* *ret_count is 0 where the unit says nothing of the address. */
static int lookup_in(struct lines *lines, struct unit_slot *slot, uint64_t addr, struct work *work,
		     size_t *ret_count)
{
	size_t count;
	int err;

	err = load_unit(lines, slot, work);
	if (!err)
		err = inlines_lookup(&slot->loaded->inlines, &slot->loaded->unit, addr, work,
				     lines->calls, &count);
	if (!err)
		err = set_frames(lines, slot->loaded, addr, count);
	if (err)
		return err;
	account(lines, slot);
	if (!count && lines->frames[0].line)
		count = 1;
	*ret_count = count;
	return 0;
}

int lines_lookup(struct lines *lines, uint64_t vaddr, const struct line_frame **ret,
		 size_t *ret_count)
{
	const uint64_t budget =
		lines->work_left < MAX_WORK_PER_LOOKUP ? lines->work_left : MAX_WORK_PER_LOOKUP;
	struct work work = {budget};
	size_t position = 0, count = 0;
	uint64_t index;
	int err = budget ? 0 : -E2BIG;

	/* Where several units claim the address, one that has a function there. */
	while (!err && !count && pcmap_next(&lines->map, vaddr, &position, &index))
		err = lookup_in(lines, &lines->slots[index], vaddr, &work, &count);
	lines->work_left -= budget - work.left;
	if (err)
		return err;
	*ret = lines->frames;
	*ret_count = count;
	return 0;
}
