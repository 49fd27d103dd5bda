/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One unit's line table, read from .debug_line: DWARF 2 to 5, section 6.2 of each.
 *
 * Not by libdw: it keeps every row of every unit asked for in 48 bytes for good, and reads them
 * all to name one file. Here rows that say nothing new are left out and the rest takes 16 bytes,
 * which the owner may drop.
 */
#ifndef HEAPTAP_SYMBOLIZE_LINE_TABLE_H
#define HEAPTAP_SYMBOLIZE_LINE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbolize/work.h"
#include "util/cleanup.h"

struct line_table;

struct line_section {
	const uint8_t *data; /* NULL if the file has none */
	size_t size;
};

/* Where the table is. Everything is borrowed and must outlive the table. */
struct line_source {
	struct line_section line;
	struct line_section line_str;
	struct line_section str;
	uint64_t offset;      /* DW_AT_stmt_list */
	const char *comp_dir; /* may be NULL */
};

/*
 * Reads the header, and the rows if asked to. Errors: -EBADMSG if there is no table at the offset
 * or its version is unknown, -ENOMEM, -E2BIG once the work is used up. A program that breaks off
 * counts as far as it goes.
 */
int line_table_read(const struct line_source *source, bool rows, struct work *work,
		    struct line_table **ret);
void line_table_free(struct line_table *table);
DEFINE_CLEANUP(line_table, struct line_table *, line_table_free)

/* The row of an address: a file's number, and a line, 0 if no line is behind the code. */
bool line_table_lookup(const struct line_table *table, uint64_t addr, uint64_t *ret_file,
		       uint64_t *ret_line);

/*
 * Writes the path of a file by its number in the table, as DW_AT_call_file has it, too. False if
 * there is no such file or the path does not fit.
 */
bool line_table_path(const struct line_table *table, uint64_t file, char *path, size_t size);

size_t line_table_bytes(const struct line_table *table);

#endif
