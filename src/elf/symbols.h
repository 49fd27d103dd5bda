/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The symbols of an ELF file's tables as they are read, in their order; symtab.c makes use of them.
 */
#ifndef HEAPTAP_ELF_SYMBOLS_H
#define HEAPTAP_ELF_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <libelf.h>

#include "elf/symtab.h"

/* Tables beyond these are damage or malice; Chromium's, the largest known, has 1.7 million. */
#define SYMBOLS_MAX	  (1u << 22)
#define STRINGS_MAX_BYTES (256u << 20)

struct symbol_entry {
	struct symbol symbol;
	uint64_t limit; /* end of its section */
	uint32_t order; /* of reading */
	uint8_t rank;	/* by binding: 0 global, 1 weak, 2 local; 3 is a label, not a function */
	bool hidden;	/* a version that is not the default one */
};

/* Grows; the members may be read and reordered. */
struct symbols {
	struct symbol_entry *entries;
	size_t count;
	size_t capacity;
	uint32_t order;
	bool labels;  /* also labels in code, which are no functions */
	char **names; /* one block of names per table read */
	size_t names_count;
	size_t names_bytes;
	uint64_t scanned_bytes;
};

void symbols_fini(struct symbols *symbols);

/*
 * Adds the tables of a type (SHT_SYMTAB or SHT_DYNSYM) of a file. Names are copied: the Elf may
 * end. Errors: -ENOEXEC for broken or too large ones, -ENOMEM. What was added before stays.
 */
int symbols_add_tables(struct symbols *symbols, Elf *elf, uint32_t type);

/* Makes room for more entries. Errors as above. */
int symbols_reserve(struct symbols *symbols, size_t more);

/* A block for names, owned by the symbols; NULL if memory ran out. */
char *symbols_new_names(struct symbols *symbols, size_t size);

#endif
