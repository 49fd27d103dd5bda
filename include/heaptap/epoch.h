/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Epochs: the spans between snapshots. The state lies in memory shared by the BPF programs and the
 * loader; either side closes an epoch, under the lock `closing`. A closed epoch's record stays
 * until the loader has drained it and says so in `drained`.
 */
#ifndef HEAPTAP_EPOCH_H
#define HEAPTAP_EPOCH_H

#include "heaptap/types.h"

enum epoch_reason {
	EPOCH_ALLOC_INTERVAL = 1,
	EPOCH_FREE_INTERVAL,
	EPOCH_INUSE_INTERVAL,
	EPOCH_TIME_INTERVAL,
	EPOCH_SIGNAL,
	EPOCH_EXIT,   /* the last process of the scope exited */
	EPOCH_LEFT,   /* processes of the scope exited, but not the last one */
	EPOCH_DETACH, /* the session ends */
	EPOCH_DRAIN,  /* only to make room: there is no snapshot, and the thresholds stay */
};

/* Whether a trigger closes it: its snapshot may be merged with the next one, and is counted then.
 */
static inline int epoch_is_triggered(__u32 reason)
{
	return reason <= EPOCH_TIME_INTERVAL;
}

/* Totals over the whole session, as weights (WEIGHT_BYTES_SHIFT). */
struct epoch_totals {
	__u64 alloc_bytes;
	__u64 freed_bytes;
	__u64 gone_bytes;      /* that were in use when their process exited or executed */
	__u64 inherited_bytes; /* that forked children had in use from their beginning */
};

struct epoch_record {
	__u32 epoch;
	__u32 reason;  /* enum epoch_reason */
	__u64 time_ns; /* CLOCK_MONOTONIC */
	struct epoch_totals totals;
};

/*
 * Closed epochs that may wait for the loader. A close beyond that is refused; those of triggers
 * leave room for one that the loader closes and for the last process's.
 */
#define EPOCH_RECORDS  256
#define EPOCH_RESERVED 2

struct epoch_state {
	__u32 current; /* counts up from 1 */
	__u32 drained; /* the last epoch the loader is done with */
	__u32 closing; /* lock */
	__u32 active;  /* 0: nothing is counted */
	struct epoch_totals totals;
	/* Thresholds compare with these; all are weights like the totals. */
	struct epoch_totals at_last_close;
	__u64 high_water;
	struct epoch_record records[EPOCH_RECORDS];
};

static inline __u64 epoch_inuse_bytes(const struct epoch_totals *totals)
{
	__u64 had = totals->alloc_bytes + totals->inherited_bytes;
	__u64 left = totals->freed_bytes + totals->gone_bytes;

	return had > left ? had - left : 0;
}

/*
 * Closes the current epoch; the caller holds the lock. Returns the closed epoch, or 0 if too many
 * wait for the loader.
 */
static inline __u32 epoch_close_locked(volatile struct epoch_state *state, __u32 reason,
				       __u64 time_ns)
{
	__u32 epoch = state->current;
	volatile struct epoch_record *record = &state->records[epoch % EPOCH_RECORDS];
	struct epoch_totals totals = {state->totals.alloc_bytes, state->totals.freed_bytes,
				      state->totals.gone_bytes, state->totals.inherited_bytes};
	__u64 inuse = epoch_inuse_bytes(&totals);
	__u32 reserved = epoch_is_triggered(reason) ? EPOCH_RESERVED : 0;

	/* The thresholds move on in any case, so that a refused close is one, and counted once. */
	if (reason != EPOCH_DRAIN) {
		state->at_last_close.alloc_bytes = totals.alloc_bytes;
		state->at_last_close.freed_bytes = totals.freed_bytes;
		if (inuse > state->high_water)
			state->high_water = inuse;
	}
	if (epoch - state->drained >= EPOCH_RECORDS - reserved)
		return 0;
	record->epoch = epoch;
	record->reason = reason;
	record->time_ns = time_ns;
	record->totals.alloc_bytes = totals.alloc_bytes;
	record->totals.freed_bytes = totals.freed_bytes;
	record->totals.gone_bytes = totals.gone_bytes;
	record->totals.inherited_bytes = totals.inherited_bytes;
	state->current = epoch + 1;
	return epoch;
}

#endif
