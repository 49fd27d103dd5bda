/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A sample's record, from its making to its place in the live table and the site's counters. */
#ifndef HEAPTAP_RECORD_BPF_H
#define HEAPTAP_RECORD_BPF_H

#include "fork.bpf.h"
#include "live.bpf.h"
#include "maps.bpf.h"
#include "sites.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"

/* The live record of a sample of the current thread. Arguments as of stack_capture(). */
static __always_inline void record_make(struct live_record *record, __u64 pc, __u64 sp, __u64 bp,
					__u32 serial_flags, const struct weight *weight)
{
	record->weight = *weight;
	record->born = fork_clock;
	record->pad = 0;
	if (settings.label_threads)
		record->weight.thread = thread_number(weight->bytes);
	record->stack_id = stack_capture(pc, sp, bp, serial_flags, weight->bytes);
}

/* A sample has become live. */
static __always_inline void record_add(__u32 serial, __u64 address, struct live_record *record)
{
	long err;

	/* One that is inherited has another key. */
	if (settings.fork_copy && live_possible(address))
		free_missed(serial, address);
	err = live_insert(serial, 0, address, record);
	if (err == -17 /* EEXIST */ && free_missed(serial, address))
		err = live_insert(serial, 0, address, record);
	site_alloc(serial, record);
	/* Its free will not be known: in use it must not count at all. */
	if (err) {
		loss_add(LOSS_LIVE_FULL, record->weight.bytes);
		site_freed(serial, record);
	}
}

#endif
