/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The live table: samples not freed yet, by (process serial, address), behind the live filter.
 *
 * A block enters at its allocation's return, before the program knows its address, and leaves at
 * the entry of free, before the allocator can give the address to another thread: no other thread
 * can use the key in between.
 *
 * With copies for forked children (settings.fork_copy, bpf/fork.bpf.h) the table also has records
 * that a process has from its parent. Their keys are marked, so that what a process allocates
 * itself never meets them.
 */
#ifndef HEAPTAP_LIVE_BPF_H
#define HEAPTAP_LIVE_BPF_H

#include "maps.bpf.h"

/* The filter slot of an address. Blocks are 16-byte aligned, so the low bits say nothing. */
static __always_inline __u32 *live_filter_slot(__u64 address)
{
	__u64 hash = (address >> 4) * 0x9e3779b97f4a7c15ull;

	return &live_filter[hash >> (64 - LIVE_FILTER_BITS)];
}

/* Whether a live sample may lie at address. One read, no false negatives. */
static __always_inline bool live_possible(__u64 address)
{
	return *(volatile __u32 *)live_filter_slot(address) != 0;
}

/* The record leaves for good: the filter forgets its address. */
static __always_inline void live_forget(__u64 address)
{
	__sync_fetch_and_add(live_filter_slot(address), -1);
}

/*
 * The records that one of several processes has in the table change by so many. False if it has its
 * share of the table already, or is gone. Only a limit of its own is worth the look at the process.
 */
static __always_inline bool live_share(__u32 serial, __s64 change)
{
	struct process_info *info;

	if (!settings.max_live_each)
		return true;
	info = bpf_map_lookup_elem(&process_infos, &serial);
	return info && __sync_fetch_and_add(&info->live, change) < settings.max_live_each;
}

/*
 * A record leaves the table: a child that was forked before may still have to get a copy. Its own
 * function for the sake of the stack.
 */
static __noinline void live_keep(__u32 serial, __u64 address, const struct live_record *record)
{
	struct process_info *info = bpf_map_lookup_elem(&process_infos, &serial);
	struct fork_kept_key key = {.address = address, .serial = serial, .died = fork_clock};
	long err;

	if (!info || !info->copies || record->born >= key.died)
		return;
	__sync_fetch_and_add(live_filter_slot(address), 1);
	err = bpf_map_update_elem(&fork_kept, &key, record, BPF_NOEXIST);
	if (!err)
		return;
	live_forget(address);
	/* A realloc that failed has put it back in between. */
	if (err != -17 /* EEXIST */)
		loss_add(LOSS_COPY_MISSED, record->weight.bytes);
}

static __always_inline bool live_remove(__u32 serial, __u32 inherited, __u64 address,
					struct live_record *record)
{
	struct live_key key = {.address = address, .serial = serial, .inherited = inherited};
	struct live_record *found = bpf_map_lookup_elem(&live, &key);

	if (!found)
		return false;
	*record = *found;
	if (bpf_map_delete_elem(&live, &key))
		return false;
	live_share(serial, -1);
	if (settings.fork_copy && copies_due)
		live_keep(serial, address, record);
	return true;
}

/* Takes the record of a block out of the table; the filter still knows its address. */
static __always_inline bool live_take(__u32 serial, __u64 address, struct live_record *record)
{
	return live_remove(serial, 0, address, record) ||
	       (settings.fork_copy && live_remove(serial, 1, address, record));
}

/* Puts a taken record back, as it was, whether or not its place was given away. */
static __always_inline bool live_restore(__u32 serial, __u64 address,
					 const struct live_record *record)
{
	struct live_key key = {.address = address, .serial = serial};

	if (bpf_map_update_elem(&live, &key, record, BPF_NOEXIST))
		return false;
	live_share(serial, 1);
	return true;
}

/* 0, -EEXIST if the address has a record already, or another negative error if the table is full.
 */
static __always_inline long live_insert(__u32 serial, __u32 inherited, __u64 address,
					const struct live_record *record)
{
	struct live_key key = {.address = address, .serial = serial, .inherited = inherited};
	long err;

	if (!live_share(serial, 1)) {
		live_share(serial, -1);
		return -7; /* E2BIG */
	}
	/* Before the insertion: the filter must never miss a record. */
	__sync_fetch_and_add(live_filter_slot(address), 1);
	err = bpf_map_update_elem(&live, &key, record, BPF_NOEXIST);
	if (err) {
		live_forget(address);
		live_share(serial, -1);
	}
	return err;
}

#endif
