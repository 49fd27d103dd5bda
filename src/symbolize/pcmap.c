/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/pcmap.h"

#include <errno.h>
#include <stdlib.h>

void pcmap_fini(struct pcmap *map)
{
	free(map->entries);
	*map = (struct pcmap){};
}

int pcmap_add(struct pcmap *map, uint64_t low, uint64_t high, uint64_t value)
{
	if (!low || high <= low)
		return 0;
	if (map->count == map->capacity) {
		size_t capacity = map->capacity ? 2 * map->capacity : 16;
		struct pcmap_entry *entries =
			reallocarray(map->entries, capacity, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		map->entries = entries;
		map->capacity = capacity;
	}
	/* reach holds the order of addition until the map is sorted. */
	map->entries[map->count] = (struct pcmap_entry){low, high, map->count, value};
	map->count++;
	return 0;
}

/* Backwards, the way they are asked for: the narrowest first, then the one added first. */
static int compare(const void *a, const void *b)
{
	const struct pcmap_entry *left = a, *right = b;

	if (left->low != right->low)
		return left->low < right->low ? -1 : 1;
	if (left->high != right->high)
		return left->high > right->high ? -1 : 1;
	return left->reach > right->reach ? -1 : 1;
}

void pcmap_sort(struct pcmap *map)
{
	uint64_t reach = 0;

	if (!map->count)
		return;
	qsort(map->entries, map->count, sizeof(*map->entries), compare);
	for (size_t i = 0; i < map->count; i++) {
		if (map->entries[i].high > reach)
			reach = map->entries[i].high;
		map->entries[i].reach = reach;
	}
}

/* The number of entries that begin at or below addr. */
static size_t begun(const struct pcmap *map, uint64_t addr)
{
	size_t low = 0, high = map->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (map->entries[middle].low <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool pcmap_next(const struct pcmap *map, uint64_t addr, size_t *position, uint64_t *ret_value)
{
	/* The position is one more than the number of entries left. */
	size_t left = *position ? *position - 1 : begun(map, addr);

	while (left && map->entries[left - 1].reach > addr) {
		left--;
		if (map->entries[left].high > addr) {
			*position = left + 1;
			*ret_value = map->entries[left].value;
			return true;
		}
	}
	*position = 1;
	return false;
}
