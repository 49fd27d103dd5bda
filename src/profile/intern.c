/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/intern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct intern_entry {
	UT_hash_handle hh;
	uint32_t number;
	size_t size;
	char bytes[];
};

struct intern {
	struct intern_entry *table;
	struct intern_entry **entries; /* by number */
	size_t count;
	size_t capacity;
};

int intern_new(struct intern **ret)
{
	struct intern *intern = calloc(1, sizeof(*intern));

	if (!intern)
		return -ENOMEM;
	*ret = intern;
	return 0;
}

void intern_free(struct intern *intern)
{
	if (!intern)
		return;
	HASH_CLEAR(hh, intern->table);
	for (size_t i = 0; i < intern->count; i++)
		free(intern->entries[i]);
	free(intern->entries);
	free(intern);
}

static int intern_reserve(struct intern *intern)
{
	struct intern_entry **entries;
	size_t capacity;

	if (intern->count < intern->capacity)
		return 0;
	if (intern->count == UINT32_MAX)
		return -ENOMEM;
	capacity = intern->capacity ? intern->capacity * 2 : 64;
	entries = reallocarray(intern->entries, capacity, sizeof(entries[0]));
	if (!entries)
		return -ENOMEM;
	intern->entries = entries;
	intern->capacity = capacity;
	return 0;
}

int intern_add(struct intern *intern, const void *bytes, size_t size, uint32_t *ret)
{
	struct intern_entry *entry;
	unsigned int hash;

	/* uthash keeps the length of a key in 32 bits. */
	if (size > UINT32_MAX)
		return -ENOMEM;
	HASH_VALUE(bytes, size, hash);
	HASH_FIND_BYHASHVALUE(hh, intern->table, bytes, size, hash, entry);
	if (entry) {
		*ret = entry->number;
		return 0;
	}
	if (intern_reserve(intern) < 0)
		return -ENOMEM;
	entry = malloc(sizeof(*entry) + size + 1);
	if (!entry)
		return -ENOMEM;
	entry->number = intern->count;
	entry->size = size;
	if (size)
		memcpy(entry->bytes, bytes, size);
	entry->bytes[size] = '\0';
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, intern->table, entry->bytes, size, hash, entry);
	if (!entry->hh.tbl) {
		free(entry);
		return -ENOMEM;
	}
	intern->entries[intern->count++] = entry;
	*ret = entry->number;
	return 1;
}

size_t intern_count(const struct intern *intern)
{
	return intern->count;
}

const char *intern_bytes(const struct intern *intern, uint32_t number, size_t *ret_size)
{
	const struct intern_entry *entry = intern->entries[number];

	if (ret_size)
		*ret_size = entry->size;
	return entry->bytes;
}
