/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a call leaves for its return, per thread, matched by the stack pointer.
 *
 * Calls nest, so entries lie on falling stack pointers. An entry at or below the stack pointer of
 * a new call belongs to a call that never returned (longjmp, a signal handler that left): it is
 * dropped, and a realloc's old block, which such a call did not free, is live again.
 */
#ifndef HEAPTAP_PENDING_BPF_H
#define HEAPTAP_PENDING_BPF_H

#include "live.bpf.h"
#include "maps.bpf.h"
#include "sites.bpf.h"

/* A realloc did not free its old block. */
static __always_inline void pending_restore(__u32 serial, struct pending *call)
{
	if (call->has_old && !live_restore(serial, call->old_address, &call->old)) {
		live_forget(call->old_address);
		loss_add(LOSS_LIVE_FULL, call->old.weight.bytes);
		site_freed(serial, &call->old);
	}
	call->has_old = 0;
}

/* A call will not be seen to return. */
static __always_inline void pending_drop(__u32 serial, struct pending *call)
{
	pending_restore(serial, call);
	if (call->picked)
		loss_add(LOSS_RETURN_MISSED, call->weight.bytes);
	call->picked = 0;
}

static __always_inline struct pending_calls *pending_get(__u64 flags)
{
	return bpf_task_storage_get(&pending, bpf_get_current_task_btf(), NULL, flags);
}

/* Drops what is stale for a call whose return address lies at sp. */
static __always_inline void pending_unwind(struct pending_calls *calls, __u32 serial, __u64 sp)
{
	int i;

	for (i = PENDING_MAX - 1; i >= 0; i--) {
		if (calls->count <= (__u32)i)
			continue;
		if (calls->calls[i].sp > sp)
			break;
		pending_drop(serial, &calls->calls[i]);
		calls->count = i;
	}
}

/* The entry for a new call at sp, or NULL, counted. */
static __always_inline struct pending *pending_push(__u32 serial, __u64 sp, __u64 bytes)
{
	struct pending_calls *calls = pending_get(BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct pending *call;
	__u32 count;

	if (!calls)
		goto lost;
	pending_unwind(calls, serial, sp);
	count = calls->count;
	if (count >= PENDING_MAX)
		goto lost;
	call = &calls->calls[count];
	calls->count = count + 1;
	call->sp = sp;
	call->has_old = 0;
	call->picked = 0;
	return call;
lost:
	loss_add(LOSS_PENDING_FULL, bytes);
	return NULL;
}

/*
 * Removes the entry of the call that returned with its return address at sp, and returns it; it
 * stays as it is until this thread's next call. No copy: 6.1 rounds every frame up to 32 bytes, and
 * realloc's return with the walk below it would not fit the 512 bytes of stack.
 */
static __always_inline struct pending *pending_pop(struct pending_calls *calls, __u32 serial,
						   __u64 sp)
{
	__u32 last;

	/* Entries below sp belong to calls that never returned. */
	pending_unwind(calls, serial, sp - 1);
	/* Read back: a value the verifier knows it would follow, each one by itself, through the
	 * walk. */
	last = *(volatile __u32 *)&calls->count - 1;
	if (last >= PENDING_MAX || calls->calls[last].sp != sp)
		return NULL;
	calls->count = last;
	return &calls->calls[last];
}

/*
 * The record of a block that this thread's realloc took out and that is freed all the same: by a
 * nested free inside realloc, or later if realloc never returned.
 */
static __always_inline bool pending_take_old(__u64 address, struct live_record *record)
{
	struct pending_calls *calls = pending_get(0);
	int i;

	if (!calls)
		return false;
	for (i = 0; i < PENDING_MAX; i++) {
		if ((__u32)i < calls->count && calls->calls[i].has_old &&
		    calls->calls[i].old_address == address) {
			*record = calls->calls[i].old;
			calls->calls[i].has_old = 0;
			return true;
		}
	}
	return false;
}

/* A thread leaves an address space, by its exit or by executing a program. */
static __always_inline void pending_leave(__u32 serial, struct task_struct *task)
{
	struct pending_calls *calls = bpf_task_storage_get(&pending, task, NULL, 0);

	if (!calls)
		return;
	pending_unwind(calls, serial, ~0ull);
	pending_restore(serial, &calls->extent);
	bpf_task_storage_delete(&pending, task);
}

static __always_inline void pending_lose(struct pending *call)
{
	if (!call->has_old)
		return;
	live_forget(call->old_address);
	__sync_fetch_and_add(&epochs.totals.gone_bytes, call->old.weight.bytes);
	call->has_old = 0;
}

/* A thread exits whose process has been taken out of the scope, and with it all that it had. */
static __always_inline void pending_leave_last(struct task_struct *task)
{
	struct pending_calls *calls = bpf_task_storage_get(&pending, task, NULL, 0);
	int i;

	if (!calls)
		return;
	for (i = 0; i < PENDING_MAX; i++) {
		if ((__u32)i < calls->count)
			pending_lose(&calls->calls[i]);
	}
	pending_lose(&calls->extent);
}

#endif
