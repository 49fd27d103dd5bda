/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/id_map.h"

#include <errno.h>
#include <stdlib.h>

int id_map_add(struct id_map *map, uint64_t foreign, uint32_t own)
{
	if (!foreign)
		return -EBADMSG;
	if (map->count == map->capacity) {
		size_t capacity = map->capacity ? map->capacity * 2 : 16;
		struct id_pair *pairs = reallocarray(map->pairs, capacity, sizeof(*pairs));

		if (!pairs)
			return -ENOMEM;
		map->pairs = pairs;
		map->capacity = capacity;
	}
	map->pairs[map->count++] = (struct id_pair){.foreign = foreign, .own = own};
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct id_pair *left = a, *right = b;

	return (left->foreign > right->foreign) - (left->foreign < right->foreign);
}

int id_map_sort(struct id_map *map)
{
	if (map->count)
		qsort(map->pairs, map->count, sizeof(map->pairs[0]), compare);
	for (size_t i = 1; i < map->count; i++) {
		if (map->pairs[i - 1].foreign == map->pairs[i].foreign)
			return -EBADMSG;
	}
	return 0;
}

uint32_t id_map_find(const struct id_map *map, uint64_t foreign)
{
	const struct id_pair key = {.foreign = foreign};
	const struct id_pair *pair;

	/* Most writers count ids from 1. */
	if (foreign - 1 < map->count && map->pairs[foreign - 1].foreign == foreign)
		return map->pairs[foreign - 1].own;
	if (!map->count)
		return 0;
	pair = bsearch(&key, map->pairs, map->count, sizeof(key), compare);
	return pair ? pair->own : 0;
}
