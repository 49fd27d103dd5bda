/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Address ranges, each with a number; they may overlap. Filled, then sorted, then asked. All zero
 * is an empty map.
 */
#ifndef HEAPTAP_SYMBOLIZE_PCMAP_H
#define HEAPTAP_SYMBOLIZE_PCMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pcmap_entry {
	uint64_t low;
	uint64_t high;	/* exclusive */
	uint64_t reach; /* the greatest high up to this entry */
	uint64_t value;
};

struct pcmap {
	struct pcmap_entry *entries;
	size_t count;
	size_t capacity;
};

void pcmap_fini(struct pcmap *map);

/*
 * Empty ranges, and those from address 0 on, are left out without an error: linkers give that
 * address to what they have dropped, and no code of an ELF file is there. Returns 0 or -ENOMEM.
 */
int pcmap_add(struct pcmap *map, uint64_t low, uint64_t high, uint64_t value);
void pcmap_sort(struct pcmap *map);

/*
 * Finds the next range that holds addr: those that begin last come first, of two equal ones the
 * one added first. *position is 0 at the first call and private afterwards.
 */
bool pcmap_next(const struct pcmap *map, uint64_t addr, size_t *position, uint64_t *ret_value);

#endif
