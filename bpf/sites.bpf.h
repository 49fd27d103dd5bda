/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counters per site, totals, and the thresholds that close an epoch.
 *
 * A program adds to the epoch that is open when it runs. The loader drains a closed epoch only
 * after a grace period, when no program can still be adding to it.
 */
#ifndef HEAPTAP_SITES_BPF_H
#define HEAPTAP_SITES_BPF_H

#include "maps.bpf.h"

static __always_inline void weight_add(struct weight_sum *to, const struct weight *weight)
{
	__sync_fetch_and_add(&to->bytes, weight->bytes);
	__sync_fetch_and_add(&to->objects, weight->objects);
	if (weight->variance)
		__sync_fetch_and_add(&to->variance, weight->variance);
}

/* Not on the stack, which is small. */
static const struct site_counters no_counters = {};

static __always_inline struct site_counters *
site_get(__u32 epoch, enum account account, __u32 serial, const struct live_record *record)
{
	struct site_key key = {
		.epoch = epoch,
		.thread = record->weight.thread,
		.account = account,
		.serial = serial,
		.stack_id = record->stack_id,
	};
	struct site_counters *counters = bpf_map_lookup_elem(&sites, &key);

	if (counters)
		return counters;
	/* Another thread may have been faster; either way the entry is there, or the table is full.
	 */
	if (!bpf_map_update_elem(&sites, &key, &no_counters, BPF_NOEXIST) &&
	    __sync_fetch_and_add(&site_count, 1) + 1 == SITES_MANY)
		event_send(EVENT_SITES);
	return bpf_map_lookup_elem(&sites, &key);
}

/* The threshold that the totals have crossed since the last close, in gperftools' order; or 0. */
static __always_inline enum epoch_reason epoch_crossed(void)
{
	__u64 allocated = epochs.totals.alloc_bytes, freed = epochs.totals.freed_bytes;
	__u64 had = allocated + epochs.totals.inherited_bytes;
	__u64 left = freed + epochs.totals.gone_bytes;

	if (settings.alloc_interval &&
	    allocated >= epochs.at_last_close.alloc_bytes + settings.alloc_interval)
		return EPOCH_ALLOC_INTERVAL;
	if (settings.free_interval &&
	    freed >= epochs.at_last_close.freed_bytes + settings.free_interval)
		return EPOCH_FREE_INTERVAL;
	if (settings.inuse_interval && had > left &&
	    had - left > epochs.high_water + settings.inuse_interval)
		return EPOCH_INUSE_INTERVAL;
	return 0;
}

/* Called with the lock held. */
static __always_inline void epoch_close(enum epoch_reason reason)
{
	__u32 epoch = epoch_close_locked(&epochs, reason, bpf_ktime_get_ns());

	__sync_lock_test_and_set(&epochs.closing, 0);
	if (epoch)
		event_send(EVENT_EPOCH_CLOSED);
	else
		loss_add(LOSS_EPOCH_LATE, 0);
}

static __always_inline void epoch_check(void)
{
	enum epoch_reason reason;

	if (!epoch_crossed())
		return;
	/* Whoever holds the lock closes the epoch; if it was not for our crossing, the next event
	 * does. */
	if (__sync_val_compare_and_swap(&epochs.closing, 0, 1))
		return;
	reason = epoch_crossed();
	if (reason)
		epoch_close(reason);
	else
		__sync_lock_test_and_set(&epochs.closing, 0);
}

static __always_inline void site_add(enum account account, __u32 serial,
				     const struct live_record *record)
{
	struct site_counters *counters = site_get(epochs.current, account, serial, record);

	if (counters)
		weight_add(&counters->alloc, &record->weight);
	else
		loss_add(LOSS_SITE_FULL, record->weight.bytes);
	__sync_fetch_and_add(&epochs.totals.alloc_bytes, record->weight.bytes);
	epoch_check();
}

static __always_inline void site_alloc(__u32 serial, const struct live_record *record)
{
	site_add(ACCOUNT_MALLOC, serial, record);
}

/* The epoch may be closed, but the loader must not have drained it. */
static __always_inline void site_freed_in(__u32 epoch, __u32 serial,
					  const struct live_record *record)
{
	struct site_counters *counters = site_get(epoch, ACCOUNT_MALLOC, serial, record);

	if (counters)
		weight_add(&counters->freed, &record->weight);
	else
		loss_add(LOSS_SITE_FULL, record->weight.bytes);
	__sync_fetch_and_add(&epochs.totals.freed_bytes, record->weight.bytes);
}

static __always_inline void site_freed(__u32 serial, const struct live_record *record)
{
	site_freed_in(epochs.current, serial, record);
	epoch_check();
}

#endif
