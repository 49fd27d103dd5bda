/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of live records for forked children, if settings.fork_copy asks for them.
 *
 * A program at the fork cannot copy a table; the loader does it some ms later. Until then the
 * copies are due, and what changes is kept: records that leave the table of the parent
 * (live_keep()), and addresses that the child frees (fork_freed()). A copy is put into the table
 * before the notes of the child's frees are looked at, and the child notes a free before it looks
 * for the copy once more: so one of the two always sees the other.
 */
#ifndef HEAPTAP_FORK_BPF_H
#define HEAPTAP_FORK_BPF_H

#include "live.bpf.h"
#include "maps.bpf.h"
#include "sites.bpf.h"

/* A record that lies where a block was allocated now was freed out of sight. */
static __noinline int free_missed(__u32 serial, __u64 address)
{
	struct live_record old;

	if (!live_take(serial, address, &old))
		return 0;
	live_forget(address);
	loss_add(LOSS_FREE_MISSED, old.weight.bytes);
	site_freed(serial, &old);
	return 1;
}

/* What stands before it is seen by all before anything behind it is read. */
static __always_inline void fork_barrier(void)
{
	__u32 due = __sync_fetch_and_add(&copies_due, 0);

	barrier_var(due);
}

/*
 * Whether copies of this process are due. To be asked before the table is: once they are not, the
 * table has them all.
 */
static __always_inline bool fork_is_due(__u32 serial)
{
	struct process_info *info;

	if (!settings.fork_copy || !copies_due)
		return false;
	info = bpf_map_lookup_elem(&process_infos, &serial);
	return info && info->fork;
}

/* A child frees a block while its copies are due. True if it has that copy all the same. */
static __noinline int fork_freed(__u32 serial, __u64 address, struct live_record *record)
{
	struct live_key key = {.address = address, .serial = serial, .inherited = 1};
	struct fork_free freed = {.epoch = epochs.current, .died = fork_clock};
	long err = bpf_map_update_elem(&fork_frees, &key, &freed, BPF_NOEXIST);

	/* The first one counts; the next can be of a block of its own that was not sampled. */
	if (err && err != -17 /* EEXIST */)
		loss_add(LOSS_COPY_FREE_MISSED, 0);
	fork_barrier();
	return live_remove(serial, 1, address, record);
}

/*
 * Realloc has freed a block that had no record at entry. One that is inherited may have got it
 * since, or is still to get it; noted at entry, a realloc that fails would have to take the note
 * back.
 */
static __noinline int fork_freed_by_realloc(__u32 serial, __u64 address)
{
	bool due = fork_is_due(serial);
	struct live_record record;

	if (live_possible(address) && (live_remove(serial, 1, address, &record) ||
				       (due && fork_freed(serial, address, &record)))) {
		live_forget(address);
		site_freed(serial, &record);
	}
	return 0;
}

/* A fork in a process whose records the child is to have. The clock of the fork, or 0. */
static __always_inline __u32 fork_begin(__u32 parent)
{
	struct process_info *info;

	if (!settings.fork_copy || !parent)
		return 0;
	info = bpf_map_lookup_elem(&process_infos, &parent);
	if (!info)
		return 0;
	__sync_fetch_and_add(&copies_due, 1);
	__sync_fetch_and_add(&info->copies, 1);
	return __sync_fetch_and_add(&fork_clock, 1) + 1;
}

static __always_inline void fork_leave(__u32 parent)
{
	struct process_info *info = bpf_map_lookup_elem(&process_infos, &parent);

	if (info)
		__sync_fetch_and_add(&info->copies, -1);
	__sync_fetch_and_add(&copies_due, -1);
}

/* No more copies are due for a child. */
static __always_inline void fork_end(__u32 serial)
{
	struct process_info *info = bpf_map_lookup_elem(&process_infos, &serial);

	if (settings.fork_copy && info && __sync_lock_test_and_set(&info->fork, 0))
		fork_leave(info->parent);
}

/* The child has freed the block already. */
static __always_inline void fork_undo(struct process_info *info, __u32 serial,
				      struct fork_entry *entry, const struct live_record *record,
				      const struct fork_free *freed)
{
	__u64 address = entry->address;
	struct fork_kept_key key = {.address = address, .serial = serial, .died = freed->died};

	entry->freed = freed->epoch;
	site_freed_in(freed->epoch, serial, record);
	/* Its own children may have been forked before that. */
	if (!info->copies || record->born >= key.died)
		return;
	__sync_fetch_and_add(live_filter_slot(address), 1);
	if (bpf_map_update_elem(&fork_kept, &key, record, BPF_NOEXIST)) {
		live_forget(address);
		loss_add(LOSS_COPY_MISSED, record->weight.bytes);
	}
}

/* Makes one copy. False if there is no room. */
static __always_inline bool fork_copy_one(struct process_info *info, __u32 serial,
					  struct fork_entry *entry)
{
	struct live_key key = {.address = entry->address, .serial = serial, .inherited = 1};
	struct live_record record = entry->record;
	struct fork_free *freed;

	record.born = info->fork;
	freed = bpf_map_lookup_elem(&fork_frees, &key);
	if (freed) {
		fork_undo(info, serial, entry, &record, freed);
		return true;
	}
	/* Nothing will be freed any more; the table need it only for children of its own. */
	if (info->gone && !info->copies) {
		if (!info->last)
			__sync_fetch_and_add(&epochs.totals.gone_bytes, record.weight.bytes);
		return true;
	}
	if (live_insert(serial, 1, key.address, &record)) {
		loss_add(LOSS_LIVE_FULL, record.weight.bytes);
		return false;
	}
	fork_barrier();
	freed = bpf_map_lookup_elem(&fork_frees, &key);
	/* Nobody but the child can have taken it. */
	if (freed && !bpf_map_delete_elem(&live, &key)) {
		live_share(serial, -1);
		live_forget(key.address);
		fork_undo(info, serial, entry, &record, freed);
	}
	return true;
}

static long fork_copy_next(__u32 i, void *context)
{
	struct process_info *info;
	struct fork_entry *entry;
	__u32 serial = fork_batch.serial;

	if (i >= FORK_BATCH)
		return 1;
	entry = &fork_batch.entries[i];
	info = bpf_map_lookup_elem(&process_infos, &serial);
	if (!info)
		return 1;
	entry->refused = !fork_copy_one(info, serial, entry);
	if (!entry->refused)
		__sync_fetch_and_add(&epochs.totals.inherited_bytes, entry->record.weight.bytes);
	return 0;
}

#endif
