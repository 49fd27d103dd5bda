/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The unwind rule that holds at a place in an image: in its table, or in the cache of the CPU. */
#ifndef HEAPTAP_RULES_BPF_H
#define HEAPTAP_RULES_BPF_H

#include "maps.bpf.h"
#include "heaptap/unwind.h"

/*
 * The tables, by image id. The template names sizes, not types: kernel 6.1 refuses an inner map
 * that was made at run time without BTF if the template has BTF.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UNWIND_MAX_IMAGES);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_INNER_MAP);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct unwind_row));
		});
} unwind_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UNWIND_MAX_RULES);
	__type(key, __u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

/* The row that holds at a file offset: the last one at or before it. */
static __always_inline const struct unwind_rule *find_rule(__u32 image, __u32 offset)
{
	__u32 low = 1, high, middle, rule = 0;
	const struct unwind_row *row;
	void *table = bpf_map_lookup_elem(&unwind_tables, &image);
	int i;

	if (!table)
		return NULL;
	middle = 0;
	row = bpf_map_lookup_elem(table, &middle);
	if (!row)
		return NULL;
	high = row->offset + 1;
	for (i = 0; i < UNWIND_SEARCH_DEPTH + 1 && low < high; i++) {
		/* A key on the stack: the verifier then does not follow its value through the loop.
		 */
		middle = low + (high - low) / 2;
		row = bpf_map_lookup_elem(table, &middle);
		if (!row)
			return NULL;
		if (row->offset <= offset) {
			rule = row->rule;
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low > 1 ? bpf_map_lookup_elem(&unwind_rules, &rule) : NULL;
}

/*
 * Rules found lately, by frame. The rule of a place in an image never changes, so nothing has to be
 * taken out. Another thread's program may come in between on this CPU: a writer marks the entry
 * with FRAME_BUSY meanwhile, a reader looks at the frame once more when it has the rule.
 */
#define RULE_CACHE_BITS 10
#define FRAME_BUSY	(~0ull)

struct cached_rule {
	__u64 frame;
	struct unwind_rule rule;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << RULE_CACHE_BITS);
	__type(key, __u32);
	__type(value, struct cached_rule);
} rule_cache SEC(".maps");

static __always_inline struct cached_rule *rule_cache_entry(__u64 frame)
{
	__u32 key = frame * 0x9e3779b97f4a7c15ull >> (64 - RULE_CACHE_BITS);

	return bpf_map_lookup_elem(&rule_cache, &key);
}

static __always_inline bool rule_cache_read(__u64 frame, struct unwind_rule *rule)
{
	volatile struct cached_rule *entry = rule_cache_entry(frame);

	if (!entry || entry->frame != frame)
		return false;
	*rule = *(struct unwind_rule *)&entry->rule;
	barrier();
	return entry->frame == frame;
}

static __always_inline void rule_cache_write(__u64 frame, const struct unwind_rule *rule)
{
	struct cached_rule *entry = rule_cache_entry(frame);
	__u64 before;

	if (!entry)
		return;
	before = *(volatile __u64 *)&entry->frame;
	if (before == FRAME_BUSY ||
	    __sync_val_compare_and_swap(&entry->frame, before, FRAME_BUSY) != before)
		return;
	entry->rule = *rule;
	__sync_lock_test_and_set(&entry->frame, frame);
}

#endif
