/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of kernel.h about epochs. */
#include <bpf/bpf.h>
#include <errno.h>
#include <sched.h>

#include "kernel_maps.h"
#include "kernel_private.h"
#include "util/clock.h"

static volatile struct epoch_state *epoch_state(const struct kernel *kernel)
{
	return &kernel->object->bss->epochs;
}

int kernel_close_epoch(struct kernel *kernel, enum epoch_reason reason)
{
	volatile struct epoch_state *state = epoch_state(kernel);
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	__u32 epoch;

	/* A program that holds the lock is at most preempted, never asleep. */
	while (__sync_val_compare_and_swap(&state->closing, 0, 1))
		sched_yield();
	epoch = epoch_close_locked(state, reason, now_ns);
	__sync_lock_release(&state->closing);
	if (!epoch && epoch_is_triggered(reason))
		kernel_note_merged(kernel);
	return epoch || epoch_is_triggered(reason) ? 0 : -EAGAIN;
}

void kernel_note_merged(struct kernel *kernel)
{
	kernel->merged_epochs++;
}

static __u32 newest_closed(const struct kernel *kernel)
{
	return __atomic_load_n(&epoch_state(kernel)->current, __ATOMIC_ACQUIRE) - 1;
}

size_t kernel_closed_epochs(const struct kernel *kernel)
{
	return newest_closed(kernel) - epoch_state(kernel)->drained;
}

bool kernel_next_epoch(struct kernel *kernel, struct epoch_record *ret)
{
	volatile struct epoch_state *state = epoch_state(kernel);
	volatile struct epoch_record *record;
	__u32 epoch = state->drained + 1, newest = newest_closed(kernel);

	if (epoch > newest)
		return false;
	record = &state->records[epoch % EPOCH_RECORDS];
	ret->epoch = record->epoch;
	ret->reason = record->reason;
	ret->time_ns = record->time_ns;
	ret->totals.alloc_bytes = record->totals.alloc_bytes;
	ret->totals.freed_bytes = record->totals.freed_bytes;
	ret->totals.gone_bytes = record->totals.gone_bytes;
	ret->totals.inherited_bytes = record->totals.inherited_bytes;
	/* One grace period does for all that were closed before it began. */
	if (epoch > kernel->quiet_epoch) {
		kernel_wait_for_programs();
		kernel->quiet_epoch = newest;
	}
	return true;
}

struct epoch_totals kernel_totals(const struct kernel *kernel)
{
	volatile struct epoch_state *state = epoch_state(kernel);

	return (struct epoch_totals){state->totals.alloc_bytes, state->totals.freed_bytes,
				     state->totals.gone_bytes, state->totals.inherited_bytes};
}

bool kernel_sites_are_many(const struct kernel *kernel)
{
	return __atomic_load_n(&kernel->object->bss->site_count, __ATOMIC_RELAXED) >= SITES_MANY;
}

int kernel_drain(struct kernel *kernel, __u32 epoch,
		 int (*add)(void *arg, const struct site_key *key,
			    const struct site_counters *counters),
		 void *arg)
{
	int map = bpf_map__fd(kernel->object->maps.sites), err, failed = 0;
	_cleanup_free_ struct site_key *keys = NULL;
	_cleanup_free_ struct site_counters *values = NULL;
	size_t count = 0;

	err = kernel_maps_sites(map, epoch, &keys, &values, &count);
	if (!err && kernel->threads)
		err = kernel_maps_threads(bpf_map__fd(kernel->object->maps.thread_names),
					  kernel->threads);
	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		err = add(arg, &keys[i], &values[i]);
		if (err)
			failed = err;
		else
			bpf_map_delete_elem(map, &keys[i]);
	}
	if (failed)
		return failed;
	/* Those of the next epoch have come meanwhile. */
	__atomic_fetch_sub(&kernel->object->bss->site_count, count, __ATOMIC_SEQ_CST);
	__atomic_store_n(&kernel->object->bss->epochs.drained, epoch, __ATOMIC_RELEASE);
	return 0;
}
