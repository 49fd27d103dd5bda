/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lets an exception pass return probes, see heaptap/throw.h. The returns are not seen then, and the
 * kernel drops what it keeps of them at the thread's next return probe, as after a longjmp.
 *
 * Others run on this CPU meanwhile, the same program for other threads included. From 6.13 on a
 * function that takes 64 bytes of stack or more has one stack per CPU, which these would share (see
 * NO_PRIVATE_STACK(), which sleepable programs cannot use): state is kept in the request, and every
 * function here stays below.
 */
#ifndef HEAPTAP_THROW_BPF_H
#define HEAPTAP_THROW_BPF_H

#include "maps.bpf.h"
#include "pending.bpf.h"
#include "stack.bpf.h"

/*
 * The loader needs some 100 us. Until then the program sleeps by reading its own stack over and
 * over, some 1 us each time: get_user_pages() lets others run, whatever preemption model the kernel
 * has, and a busy loop would not.
 */
#define THROW_MAX_NAPS 400000

#define RINGBUF_FORCE_WAKEUP 2 /* BPF_RB_FORCE_WAKEUP */

struct throw_request throws[THROW_MAX_REQUESTS] = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} throw_events SEC(".maps");

/* Lets others run. */
static __always_inline void throw_nap(__u64 sp)
{
	__u64 word;

	bpf_copy_from_user_task(&word, sizeof(word), (void *)sp, bpf_get_current_task_btf(), 0);
}

static __always_inline struct throw_request *throw_request(__u32 index)
{
	return &throws[index & (THROW_MAX_REQUESTS - 1)];
}

struct throw_wait {
	__u64 sp;
	__u32 index;
	__u32 done;
};

static long throw_try(__u64 turn, void *context)
{
	struct throw_wait *wait = context;

	if (!__sync_val_compare_and_swap(&throw_request(turn)->state, THROW_FREE,
					 THROW_FILLED_IN)) {
		wait->index = turn & (THROW_MAX_REQUESTS - 1);
		wait->done = 1;
		return 1;
	}
	throw_nap(wait->sp);
	return 0;
}

/* The index of a request of our own, or THROW_MAX_REQUESTS. */
static __noinline __u32 throw_take(__u64 sp)
{
	struct throw_wait wait = {.sp = sp};

	bpf_loop(THROW_MAX_NAPS, throw_try, &wait, 0);
	return wait.done ? wait.index : THROW_MAX_REQUESTS;
}

/* Notes a probed call that the exception can leave. */
static long throw_note(__u64 turn, void *context)
{
	struct throw_request *request = throw_request(*(__u32 *)context);
	struct return_instance *instance = (struct return_instance *)request->instance;
	__u64 slot, address;
	__u32 at;

	if (!instance)
		return 1;
	slot = BPF_CORE_READ(instance, stack);
	at = request->count;
	if (slot >= request->sp && at < THROW_MAX_RETURNS &&
	    !bpf_probe_read_user(&address, sizeof(address), (void *)slot) &&
	    address == request->trampoline) {
		/* Kernel 6.1 forgets what it knew of a number that was on the stack meanwhile. */
		barrier_var(at);
		at &= THROW_MAX_RETURNS - 1;
		request->returns[at].slot = slot;
		request->returns[at].address = BPF_CORE_READ(instance, orig_ret_vaddr);
		request->count = at + 1;
	}
	request->instance = (__u64)BPF_CORE_READ(instance, next);
	return 0;
}

static __noinline __u32 throw_fill_in(__u32 index, __u64 sp)
{
	struct throw_request *request = throw_request(index);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	request->tgid = bpf_get_current_pid_tgid() >> 32;
	request->count = 0;
	request->sp = sp;
	request->instance = (__u64)BPF_CORE_READ(task, utask, return_instances);
	request->trampoline = trampoline_address(task);
	bpf_loop(PENDING_RETURN_PROBES, throw_note, &index, 0);
	return throw_request(index)->count;
}

static long throw_is_done(__u64 turn, void *context)
{
	struct throw_wait *wait = context;

	wait->done = *(volatile __u32 *)&throw_request(wait->index)->state == THROW_DONE;
	if (!wait->done)
		throw_nap(wait->sp);
	return wait->done;
}

/* Has the loader do it. */
static __noinline __u32 throw_ask(__u32 index, __u64 sp)
{
	struct throw_wait wait = {.sp = sp, .index = index};

	__sync_lock_test_and_set(&throw_request(index)->state, THROW_WAITS);
	bpf_ringbuf_output(&throw_events, &wait.done, sizeof(wait.done), RINGBUF_FORCE_WAKEUP);
	bpf_loop(THROW_MAX_NAPS, throw_is_done, &wait, 0);
	return wait.done;
}

/* The allocations that the exception leaves have failed. */
static __noinline int throw_forget(__u64 sp)
{
	struct pending_calls *calls = pending_get(0);
	int i;

	if (!calls)
		return 0;
	for (i = 0; i < PENDING_MAX; i++)
		if ((__u32)i < calls->count && calls->calls[i].sp >= sp)
			calls->calls[i].picked = 0;
	return 0;
}

/* sp: the thrower's. */
static __noinline int throw_clear(__u64 sp)
{
	__u32 index;

	throw_forget(sp);
	index = throw_take(sp);
	if (index >= THROW_MAX_REQUESTS) {
		loss_add(LOSS_THROW_LATE, 0);
		return 0;
	}
	if (!throw_fill_in(index, sp) || throw_ask(index, sp)) {
		__sync_lock_test_and_set(&throw_request(index)->state, THROW_FREE);
		return 0;
	}
	/* What the loader has in its hands stays its own, and is lost to us. */
	loss_add(LOSS_THROW_LATE, 0);
	__sync_val_compare_and_swap(&throw_request(index)->state, THROW_WAITS, THROW_FREE);
	return 0;
}

#endif
