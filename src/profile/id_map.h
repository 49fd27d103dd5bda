/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ids of a file, which need not be dense, to our own. */
#ifndef HEAPTAP_PROFILE_ID_MAP_H
#define HEAPTAP_PROFILE_ID_MAP_H

#include <stddef.h>
#include <stdint.h>

struct id_pair {
	uint64_t foreign;
	uint32_t own;
};

struct id_map {
	struct id_pair *pairs; /* by foreign id, once sorted; freed by the owner */
	size_t count;
	size_t capacity;
};

/* Returns 0, -EBADMSG for the id 0, or -ENOMEM. */
int id_map_add(struct id_map *map, uint64_t foreign, uint32_t own);
/* To be called before the first look-up. Returns 0, or -EBADMSG if an id was added twice. */
int id_map_sort(struct id_map *map);
/* 0 if there is none. */
uint32_t id_map_find(const struct id_map *map, uint64_t foreign);

#endif
