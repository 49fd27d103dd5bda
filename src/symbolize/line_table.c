/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/line_table.h"

#include <dwarf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "symbolize/pcmap.h"
#include "util/cursor.h"

/* 256 MB of rows; the largest tables of units as one finds them have a tenth of that. */
#define MAX_ROWS    (1u << 24)
#define MAX_FORMATS 16

struct row {
	uint64_t addr;
	uint32_t line;
	uint32_t file;
};

struct sequence {
	size_t first; /* row */
	size_t count;
};

struct file {
	const char *name;
	uint64_t directory;
};

struct line_table {
	struct line_source source;
	uint16_t version;
	uint8_t offset_size;
	uint8_t min_inst_length;
	int8_t line_base;
	uint8_t line_range;
	uint8_t opcode_base;
	const uint8_t *opcode_lengths;
	struct file *files; /* numbered from 1 before DWARF 5 */
	size_t file_count;
	const char **directories; /* numbered from 1 before DWARF 5 */
	size_t directory_count;
	struct row *rows;
	size_t row_count;
	size_t row_capacity;
	struct sequence *sequences;
	size_t sequence_count;
	struct pcmap map; /* of sequences */
};

/* The state machine's registers, as far as they count here. */
struct registers {
	uint64_t addr;
	uint64_t file;
	uint64_t line;
};

void line_table_free(struct line_table *table)
{
	if (!table)
		return;
	free(table->files);
	free(table->directories);
	free(table->rows);
	free(table->sequences);
	pcmap_fini(&table->map);
	free(table);
}

size_t line_table_bytes(const struct line_table *table)
{
	return sizeof(*table) + table->file_count * sizeof(*table->files) +
	       table->directory_count * sizeof(*table->directories) +
	       table->row_capacity * sizeof(*table->rows) +
	       table->sequence_count * sizeof(*table->sequences) +
	       table->map.capacity * sizeof(*table->map.entries);
}

/* A string inside the section, or NULL. */
static const char *section_string(const struct line_section *section, uint64_t offset)
{
	if (offset >= section->size || !memchr(section->data + offset, 0, section->size - offset))
		return NULL;
	return (const char *)section->data + offset;
}

static const char *read_string(struct cursor *c)
{
	const char *string = (const char *)c->pos;
	const char *end = c->underflow ? NULL : memchr(string, 0, cursor_left(c));

	if (!end) {
		c->underflow = true;
		return NULL;
	}
	cursor_bytes(c, end - string + 1);
	return string;
}

static int add_file(struct line_table *table, const char *name, uint64_t directory)
{
	struct file *files = table->files;

	/* Powers of two, so that a long list is not copied for each of its members. */
	if (!(table->file_count & (table->file_count - 1))) {
		files = reallocarray(files, table->file_count ? 2 * table->file_count : 1,
				     sizeof(*files));
		if (!files)
			return -ENOMEM;
		table->files = files;
	}
	files[table->file_count++] = (struct file){name, directory};
	return 0;
}

static int add_directory(struct line_table *table, const char *name)
{
	const char **directories = table->directories;

	if (!(table->directory_count & (table->directory_count - 1))) {
		directories = reallocarray(directories,
					   table->directory_count ? 2 * table->directory_count : 1,
					   sizeof(*directories));
		if (!directories)
			return -ENOMEM;
		table->directories = directories;
	}
	directories[table->directory_count++] = name;
	return 0;
}

static int read_lists_v4(struct line_table *table, struct cursor *c, struct work *work)
{
	const char *name;
	int err = 0;

	while (!err && (name = read_string(c)) && *name)
		err = work_take(work, 1) ? add_directory(table, name) : -E2BIG;
	while (!err && (name = read_string(c)) && *name) {
		uint64_t directory = cursor_uleb128(c);

		cursor_uleb128(c); /* time */
		cursor_uleb128(c); /* size */
		err = work_take(work, 1) ? add_file(table, name, directory) : -E2BIG;
	}
	return err;
}

struct format {
	uint64_t content;
	uint64_t form;
};

/* Reads a value of the forms that the lists may have; sets underflow on any other. */
static void read_form(const struct line_table *table, struct cursor *c, uint64_t form,
		      uint64_t *ret_number, const char **ret_string)
{
	*ret_number = 0;
	*ret_string = NULL;
	switch (form) {
	case DW_FORM_string:
		*ret_string = read_string(c);
		break;
	case DW_FORM_line_strp:
		*ret_string =
			section_string(&table->source.line_str, cursor_uint(c, table->offset_size));
		break;
	case DW_FORM_strp:
		*ret_string =
			section_string(&table->source.str, cursor_uint(c, table->offset_size));
		break;
	case DW_FORM_data1:
		*ret_number = cursor_u8(c);
		break;
	case DW_FORM_data2:
		*ret_number = cursor_u16(c);
		break;
	case DW_FORM_data4:
		*ret_number = cursor_u32(c);
		break;
	case DW_FORM_data8:
		*ret_number = cursor_u64(c);
		break;
	case DW_FORM_udata:
		*ret_number = cursor_uleb128(c);
		break;
	case DW_FORM_data16:
		cursor_bytes(c, 16);
		break;
	case DW_FORM_block:
		cursor_bytes(c, cursor_uleb128(c));
		break;
	default:
		c->underflow = true;
		break;
	}
}

static int read_list_v5(struct line_table *table, struct cursor *c, bool directories,
			struct work *work)
{
	struct format formats[MAX_FORMATS];
	uint8_t format_count = cursor_u8(c);
	uint64_t count;

	if (format_count > MAX_FORMATS)
		return -EBADMSG;
	for (uint8_t i = 0; i < format_count; i++) {
		formats[i].content = cursor_uleb128(c);
		formats[i].form = cursor_uleb128(c);
	}
	count = cursor_uleb128(c);
	for (uint64_t i = 0; i < count && !c->underflow; i++) {
		uint64_t directory = 0, number;
		const char *name = NULL, *string;
		int err;

		if (!work_take(work, 1))
			return -E2BIG;
		for (uint8_t k = 0; k < format_count; k++) {
			read_form(table, c, formats[k].form, &number, &string);
			if (formats[k].content == DW_LNCT_path)
				name = string;
			else if (formats[k].content == DW_LNCT_directory_index)
				directory = number;
		}
		err = directories ? add_directory(table, name) : add_file(table, name, directory);
		if (err)
			return err;
	}
	return 0;
}

/* Leaves *program at the line program. */
static int read_header(struct line_table *table, struct work *work, struct cursor *program)
{
	const struct line_source *source = &table->source;
	struct cursor c = cursor_init(source->line.data ? source->line.data : (const void *)"",
				      source->line.size),
		      header;
	uint64_t length, header_length;
	int err;

	cursor_bytes(&c, source->offset);
	length = cursor_u32(&c);
	table->offset_size = length == UINT32_MAX ? 8 : 4;
	if (table->offset_size == 8)
		length = cursor_u64(&c);
	if (c.underflow || length > cursor_left(&c))
		return -EBADMSG;
	c.end = c.pos + length;
	table->version = cursor_u16(&c);
	if (table->version < 2 || table->version > 5)
		return -EBADMSG;
	if (table->version >= 5 && (cursor_u8(&c) != 8 || cursor_u8(&c) != 0))
		return -EBADMSG;
	header_length = cursor_uint(&c, table->offset_size);
	if (c.underflow || header_length > cursor_left(&c))
		return -EBADMSG;
	header = cursor_init(c.pos, header_length);
	*program = cursor_init(c.pos + header_length, cursor_left(&c) - header_length);
	table->min_inst_length = cursor_u8(&header);
	if (table->version >= 4)
		cursor_u8(&header); /* operations per instruction, 1 on x86 */
	cursor_u8(&header);	    /* default of is_stmt */
	table->line_base = (int8_t)cursor_u8(&header);
	table->line_range = cursor_u8(&header);
	table->opcode_base = cursor_u8(&header);
	table->opcode_lengths =
		cursor_bytes(&header, table->opcode_base ? table->opcode_base - 1 : 0);
	if (header.underflow || !table->line_range || !table->opcode_base)
		return -EBADMSG;
	if (table->version < 5)
		return read_lists_v4(table, &header, work);
	err = read_list_v5(table, &header, true, work);
	return err ? err : read_list_v5(table, &header, false, work);
}

static int add_row(struct line_table *table, size_t first, const struct registers *regs)
{
	struct row row = {
		.addr = regs->addr,
		.line = regs->line <= INT32_MAX ? regs->line : 0,
		.file = regs->file <= UINT32_MAX ? regs->file : 0,
	};
	struct row *last = table->row_count > first ? &table->rows[table->row_count - 1] : NULL;

	/* Of several rows at an address the last one is true. */
	if (last && last->addr == row.addr) {
		*last = row;
		return 0;
	}
	if (last && last->line == row.line && last->file == row.file)
		return 0;
	if (table->row_count == table->row_capacity) {
		size_t capacity = table->row_capacity ? 2 * table->row_capacity : 256;
		struct row *rows;

		if (capacity > MAX_ROWS)
			return -E2BIG;
		rows = reallocarray(table->rows, capacity, sizeof(*rows));
		if (!rows)
			return -ENOMEM;
		table->rows = rows;
		table->row_capacity = capacity;
	}
	table->rows[table->row_count++] = row;
	return 0;
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *left = a, *right = b;

	return left->addr < right->addr ? -1 : left->addr > right->addr;
}

/* Closes the sequence of the rows from `first` on; end is the first address behind it. */
static int end_sequence(struct line_table *table, size_t first, uint64_t end)
{
	size_t count = table->row_count - first;
	struct sequence *sequences;

	if (!count)
		return 0;
	for (size_t i = first + 1; i < table->row_count; i++) {
		/* Sequences ascend; one that does not is none of a compiler's. */
		if (table->rows[i].addr < table->rows[i - 1].addr) {
			qsort(table->rows + first, count, sizeof(*table->rows), compare_rows);
			break;
		}
	}
	if (!table->rows[first].addr || end <= table->rows[first].addr) {
		table->row_count = first;
		return 0;
	}
	if (!(table->sequence_count & (table->sequence_count - 1))) {
		sequences = reallocarray(table->sequences,
					 table->sequence_count ? 2 * table->sequence_count : 1,
					 sizeof(*sequences));
		if (!sequences)
			return -ENOMEM;
		table->sequences = sequences;
	}
	table->sequences[table->sequence_count] = (struct sequence){first, count};
	return pcmap_add(&table->map, table->rows[first].addr, end, table->sequence_count++);
}

/* An operation behind opcode 0. *ret_end is set where it closes the sequence. */
static int run_extended(struct line_table *table, struct cursor *c, struct registers *regs,
			bool *ret_end)
{
	uint64_t length = cursor_uleb128(c), directory;
	const void *bytes = length ? cursor_bytes(c, length) : NULL;
	struct cursor op = cursor_init(bytes ? bytes : "", bytes ? length : 0);
	const char *name;

	*ret_end = false;
	switch (cursor_u8(&op)) {
	case DW_LNE_end_sequence:
		*ret_end = bytes;
		break;
	case DW_LNE_set_address:
		regs->addr = cursor_uint(&op, cursor_left(&op) < 8 ? cursor_left(&op) : 8);
		break;
	case DW_LNE_define_file:
		name = read_string(&op);
		directory = cursor_uleb128(&op);
		return add_file(table, name, directory);
	}
	return 0;
}

static int run_standard(struct line_table *table, struct cursor *c, uint8_t opcode,
			struct registers *regs, bool *ret_row)
{
	*ret_row = false;
	switch (opcode) {
	case DW_LNS_copy:
		*ret_row = true;
		break;
	case DW_LNS_advance_pc:
		regs->addr += cursor_uleb128(c) * table->min_inst_length;
		break;
	case DW_LNS_advance_line:
		regs->line += cursor_sleb128(c);
		break;
	case DW_LNS_set_file:
		regs->file = cursor_uleb128(c);
		break;
	case DW_LNS_const_add_pc:
		regs->addr += (uint64_t)((255 - table->opcode_base) / table->line_range) *
			      table->min_inst_length;
		break;
	case DW_LNS_fixed_advance_pc:
		regs->addr += cursor_u16(c);
		break;
	default:
		for (uint8_t i = 0; i < table->opcode_lengths[opcode - 1]; i++)
			cursor_uleb128(c);
		break;
	}
	return 0;
}

static int run_program(struct line_table *table, struct cursor *c, struct work *work)
{
	const struct registers initial = {.file = 1, .line = 1};
	struct registers regs = initial;
	size_t first = 0;
	int err = 0;

	while (!err && !c->underflow && cursor_left(c)) {
		uint8_t opcode = cursor_u8(c);
		bool row = true, end = false;

		if (!work_take(work, 1))
			return -E2BIG;
		if (opcode >= table->opcode_base) {
			opcode -= table->opcode_base;
			regs.addr +=
				(uint64_t)(opcode / table->line_range) * table->min_inst_length;
			regs.line += table->line_base + opcode % table->line_range;
		} else if (opcode) {
			err = run_standard(table, c, opcode, &regs, &row);
		} else {
			row = false;
			err = run_extended(table, c, &regs, &end);
		}
		if (row && !err)
			err = add_row(table, first, &regs);
		if (end && !err) {
			err = end_sequence(table, first, regs.addr);
			first = table->row_count;
			regs = initial;
		}
	}
	/* Rows without an end have no extent. */
	table->row_count = first;
	pcmap_sort(&table->map);
	return err;
}

int line_table_read(const struct line_source *source, bool rows, struct work *work,
		    struct line_table **ret)
{
	struct line_table *table CLEANUP(line_table) = calloc(1, sizeof(*table));
	struct cursor program;
	int err;

	if (!table)
		return -ENOMEM;
	table->source = *source;
	err = read_header(table, work, &program);
	if (!err && rows)
		err = run_program(table, &program, work);
	if (err)
		return err;
	*ret = take_ptr(table);
	return 0;
}

bool line_table_lookup(const struct line_table *table, uint64_t addr, uint64_t *ret_file,
		       uint64_t *ret_line)
{
	const struct sequence *sequence;
	size_t position = 0, low, high;
	uint64_t index;

	if (!pcmap_next(&table->map, addr, &position, &index))
		return false;
	sequence = &table->sequences[index];
	low = sequence->first;
	high = low + sequence->count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (table->rows[middle].addr <= addr)
			low = middle;
		else
			high = middle;
	}
	*ret_file = table->rows[low].file;
	*ret_line = table->rows[low].line;
	return true;
}

/* The directory by its number; NULL if there is none. */
static const char *directory_name(const struct line_table *table, uint64_t number)
{
	if (table->version < 5 && !number)
		return NULL; /* the compilation's own */
	if (table->version < 5)
		number--;
	return number < table->directory_count ? table->directories[number] : NULL;
}

bool line_table_path(const struct line_table *table, uint64_t file, char *path, size_t size)
{
	const char *name, *directory, *comp_dir = table->source.comp_dir;
	int length;

	if (table->version < 5 && !file--)
		return false;
	if (file >= table->file_count)
		return false;
	name = table->files[file].name;
	if (!name || !*name)
		return false;
	directory = directory_name(table, table->files[file].directory);
	if (directory && comp_dir && !strcmp(directory, comp_dir))
		directory = NULL;
	if (*name == '/')
		length = snprintf(path, size, "%s", name);
	else if (directory && (*directory == '/' || !comp_dir))
		length = snprintf(path, size, "%s/%s", directory, name);
	else if (directory)
		length = snprintf(path, size, "%s/%s/%s", comp_dir, directory, name);
	else if (comp_dir)
		length = snprintf(path, size, "%s/%s", comp_dir, name);
	else
		length = snprintf(path, size, "%s", name);
	return length > 0 && (size_t)length < size;
}
