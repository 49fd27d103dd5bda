/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Split units: from a .dwo file, or from a .dwp package (DWARF 5 section 7.3.5, and GNU's version 2
 * of it before).
 *
 * libdw 0.188 reads no packages, and maps .dwo files. So a unit is cut out of either, as a small
 * file of its own that libdw reads as if nothing had been split. Of the strings only those are
 * taken that the unit refers to: a package has one section of them for all its units.
 */
#include "symbolize/dwarf_unit.h"

#include <dwarf.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "util/cursor.h"

#ifndef DW_AT_GNU_ranges_base
#define DW_AT_GNU_ranges_base 0x2132
#endif

/* Columns of a package's index. */
enum {
	COLUMN_INFO = 1,
	COLUMN_ABBREV = 3,
	COLUMN_LINE = 4,
	COLUMN_STR_OFFSETS = 6,
	COLUMN_RNGLISTS = 8,
	MAX_COLUMNS = 16,
};

/* The header of a unit: section 7.5.1. */
struct header {
	uint64_t size; /* of the whole unit */
	uint16_t version;
	uint8_t type;
	uint8_t offset_size;
};

static bool read_header(struct cursor *c, struct header *ret)
{
	const uint8_t *start = c->pos;
	uint64_t length = cursor_u32(c);

	ret->offset_size = 4;
	if (length == UINT32_MAX) {
		ret->offset_size = 8;
		length = cursor_u64(c);
	}
	if (c->underflow || length > cursor_left(c) || length < 8)
		return false;
	ret->size = c->pos - start + length;
	ret->version = cursor_u16(c);
	ret->type = ret->version >= 5 ? cursor_u8(c) : DW_UT_split_compile;
	c->pos = start;
	cursor_bytes(c, ret->size);
	return true;
}

/* Narrows .debug_info to its one unit that is not of types. */
static bool narrow_info(struct line_section *info, struct header *ret)
{
	struct cursor c = cursor_init(info->data, info->size);

	while (cursor_left(&c)) {
		const uint8_t *start = c.pos;

		if (!read_header(&c, ret))
			return false;
		if (ret->type == DW_UT_split_compile) {
			*info = (struct line_section){start, ret->size};
			return true;
		}
	}
	return false;
}

static void narrow(struct line_section *section, uint64_t offset, uint64_t size)
{
	if (offset > section->size || size > section->size - offset) {
		*section = (struct line_section){};
		return;
	}
	section->data += offset;
	section->size = size;
}

struct package_index {
	struct cursor hashes;
	struct cursor rows;
	struct cursor table; /* of columns, offsets and sizes */
	uint32_t columns;
	uint32_t units;
	uint32_t slots;
};

static bool open_index(const struct dwarf_file *package, struct package_index *ret)
{
	const struct line_section *section = &package->sections[DWARF_SECTION_cu_index];
	struct cursor c =
		cursor_init(section->data ? section->data : (const void *)"", section->size);
	uint16_t version = cursor_u16(&c);

	cursor_u16(&c);
	ret->columns = cursor_u32(&c);
	ret->units = cursor_u32(&c);
	ret->slots = cursor_u32(&c);
	/* The hash of an entry is masked: their number is a power of two. */
	if (c.underflow || (version != 2 && version != 5) || !ret->slots ||
	    (ret->slots & (ret->slots - 1)) || ret->columns > MAX_COLUMNS)
		return false;
	ret->hashes = cursor_init(cursor_bytes(&c, 8 * (size_t)ret->slots), 8 * (size_t)ret->slots);
	ret->rows = cursor_init(cursor_bytes(&c, 4 * (size_t)ret->slots), 4 * (size_t)ret->slots);
	ret->table = c;
	return !c.underflow;
}

static uint64_t number_at(const struct cursor *base, uint64_t index, size_t size)
{
	struct cursor c = *base;

	cursor_bytes(&c, index * size);
	return cursor_uint(&c, size);
}

/* The row of a unit, from 1; 0 if the package does not have it. */
static uint32_t find_row(const struct package_index *index, uint64_t id, struct work *work)
{
	uint32_t mask = index->slots - 1, slot = id & mask, step = ((id >> 32) & mask) | 1;

	for (uint32_t i = 0; i < index->slots && work_take(work, 1); i++) {
		uint32_t row = number_at(&index->rows, slot, 4);

		if (!row)
			return 0;
		if (number_at(&index->hashes, slot, 8) == id)
			return row <= index->units ? row : 0;
		slot = (slot + step) & mask;
	}
	return 0;
}

/* Narrows the package's sections to one unit's parts. */
static bool narrow_to_row(const struct package_index *index, uint32_t row,
			  struct line_section *sections)
{
	static const uint8_t columns[MAX_COLUMNS] = {
		[COLUMN_INFO] = DWARF_SECTION_info + 1,
		[COLUMN_ABBREV] = DWARF_SECTION_abbrev + 1,
		[COLUMN_LINE] = DWARF_SECTION_line + 1,
		[COLUMN_STR_OFFSETS] = DWARF_SECTION_str_offsets + 1,
		[COLUMN_RNGLISTS] = DWARF_SECTION_rnglists + 1,
	};
	const uint64_t columns_count = index->columns;

	for (uint64_t i = 0; i < columns_count; i++) {
		uint64_t column = number_at(&index->table, i, 4);
		uint64_t offset = number_at(&index->table, row * columns_count + i, 4);
		uint64_t size =
			number_at(&index->table, (index->units + row) * columns_count + i, 4);

		if (column < MAX_COLUMNS && columns[column])
			narrow(&sections[columns[column] - 1], offset, size);
	}
	return sections[DWARF_SECTION_info].data && sections[DWARF_SECTION_abbrev].data;
}

/* The strings that a unit refers to, one after the other, and offsets to them. */
struct strings {
	uint8_t *offsets;
	size_t offsets_size;
	char *bytes;
	size_t size;
	size_t capacity;
};

static int add_string(struct strings *strings, const char *text, uint32_t *ret)
{
	size_t size = strlen(text) + 1;

	if (size > UINT32_MAX / 2 - strings->size)
		return -E2BIG;
	if (strings->size + size > strings->capacity) {
		size_t capacity = 2 * (strings->size + size);
		char *bytes = realloc(strings->bytes, capacity);

		if (!bytes)
			return -ENOMEM;
		strings->bytes = bytes;
		strings->capacity = capacity;
	}
	memcpy(strings->bytes + strings->size, text, size);
	*ret = strings->size;
	strings->size += size;
	return 0;
}

/* Offsets are of 4 bytes; 64-bit DWARF is not written by any compiler by itself. */
static int copy_strings(const struct line_section *sections, const struct header *header,
			struct work *work, struct strings *strings)
{
	const struct line_section *offsets = &sections[DWARF_SECTION_str_offsets];
	const struct line_section *str = &sections[DWARF_SECTION_str];
	size_t first = header->version >= 5 ? 8 : 0;

	if (!offsets->data)
		return 0;
	strings->offsets = malloc(offsets->size);
	if (!strings->offsets)
		return -ENOMEM;
	memcpy(strings->offsets, offsets->data, offsets->size);
	strings->offsets_size = offsets->size;
	for (size_t at = first; at + 4 <= offsets->size; at += 4) {
		uint32_t offset;
		const char *text;
		size_t left;
		int err;

		memcpy(&offset, offsets->data + at, 4);
		text = (const char *)str->data + offset;
		left = offset < str->size ? str->size - offset : 0;
		if (!left || !memchr(text, 0, left))
			text = "";
		if (!work_take(work, 1 + strlen(text) / 16))
			return -E2BIG;
		err = add_string(strings, text, &offset);
		if (err)
			return err;
		memcpy(strings->offsets + at, &offset, 4);
	}
	return 0;
}

static int cut_out(const struct line_section *all, struct work *work, struct dwarf_file **ret,
		   struct header *ret_header)
{
	struct line_section sections[DWARF_SECTION_COUNT];
	struct strings strings = {};
	int err;

	memcpy(sections, all, sizeof(sections));
	sections[DWARF_SECTION_cu_index] = (struct line_section){};
	if (!narrow_info(&sections[DWARF_SECTION_info], ret_header) || ret_header->offset_size != 4)
		return -EBADMSG;
	err = copy_strings(sections, ret_header, work, &strings);
	sections[DWARF_SECTION_str_offsets] =
		(struct line_section){strings.offsets, strings.offsets_size};
	sections[DWARF_SECTION_str] = (struct line_section){(uint8_t *)strings.bytes, strings.size};
	if (!err)
		err = dwarf_file_make(sections, ret);
	free(strings.offsets);
	free(strings.bytes);
	return err;
}

/* Whether the file is what the skeleton means. */
static bool has_id(struct dwarf_file *file, Dwarf_Die *ret_die, uint64_t id)
{
	Dwarf_CU *cu = NULL;
	uint64_t found = 0;
	uint8_t type;

	if (dwarf_get_units(file->dwarf, NULL, &cu, NULL, NULL, ret_die, NULL) ||
	    dwarf_cu_info(cu, NULL, &type, NULL, NULL, &found, NULL, NULL))
		return false;
	if (type == DW_UT_split_compile && found)
		return found == id;
	return dwarf_unit_number(ret_die, DW_AT_GNU_dwo_id, &found) && found == id;
}

static int from_package(const struct dwarf_file *package, uint64_t id, struct work *work,
			struct dwarf_file **ret, struct header *ret_header)
{
	struct line_section sections[DWARF_SECTION_COUNT];
	struct package_index index;
	uint32_t row;

	if (!open_index(package, &index))
		return -ENOENT;
	row = find_row(&index, id, work);
	memcpy(sections, package->sections, sizeof(sections));
	if (!row || !narrow_to_row(&index, row, sections))
		return -ENOENT;
	return cut_out(sections, work, ret, ret_header);
}

static int from_path(const struct dwarf_place *place, const char *path, struct work *work,
		     struct dwarf_file **ret, struct header *ret_header)
{
	struct dwarf_file *file CLEANUP(dwarf_file) = NULL;
	int fd = dwarf_file_open_path(place, path), err;

	if (fd < 0)
		return fd;
	err = dwarf_file_open_split(fd, &file);
	return err ? err : cut_out(file->sections, work, ret, ret_header);
}

/*
 * Where the compiler wrote the file, then beside the image: by the name's last part, too, where a
 * build was moved.
 */
static int from_file(struct dwarf_unit *unit, const struct dwarf_place *place, struct work *work,
		     struct dwarf_file **ret, struct header *ret_header)
{
	const char *comp_dir = dwarf_unit_string(unit, &unit->skeleton, DW_AT_comp_dir);
	const char *name = dwarf_unit_string(unit, &unit->skeleton, DW_AT_dwo_name), *base;
	const char *path = place->path, *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash + 1 - path) : 0, err;
	char candidates[3][PATH_MAX];

	if (!name)
		name = dwarf_unit_string(unit, &unit->skeleton, DW_AT_GNU_dwo_name);
	if (!name)
		return -ENOENT;
	base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	if (*name == '/' || !comp_dir)
		snprintf(candidates[0], PATH_MAX, "%s", name);
	else
		snprintf(candidates[0], PATH_MAX, "%s/%s", comp_dir, name);
	snprintf(candidates[1], PATH_MAX, "%.*s%s", folder, path, name);
	snprintf(candidates[2], PATH_MAX, "%.*s%s", folder, path, base);
	err = -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(candidates) && err && err != -ENOMEM && err != -E2BIG;
	     i++)
		err = from_path(place, candidates[i], work, ret, ret_header);
	return err;
}

int dwarf_unit_open_split(struct dwarf_unit *unit, uint64_t id, const struct dwarf_place *place,
			  struct dwarf_file *package, struct work *work)
{
	struct dwarf_file *file CLEANUP(dwarf_file) = NULL;
	struct header header;
	Dwarf_Die die;
	int err = -ENOENT;

	if (package)
		err = from_package(package, id, work, &file, &header);
	if (err && err != -ENOMEM && err != -E2BIG)
		err = from_file(unit, place, work, &file, &header);
	if (err == -ENOMEM || err == -E2BIG)
		return err;
	if (err || !has_id(file, &die, id))
		return 0;
	unit->split = take_ptr(file);
	unit->file = unit->split;
	unit->die = die;
	unit->version = header.version;
	/* Behind the header of the first, the only table of lists. */
	unit->rnglists_base = 12;
	dwarf_unit_offset(unit, &unit->skeleton, DW_AT_GNU_ranges_base, &unit->ranges_base);
	return 0;
}

void dwarf_unit_fini(struct dwarf_unit *unit)
{
	dwarf_file_close(unit->split);
}
