/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lets an exception pass return probes, see heaptap/throw.h. The returns are not seen then, and the
 * kernel drops what it keeps of them at the thread's next return probe, as after a longjmp.
 */
#ifndef HEAPTAP_THROW_BPF_H
#define HEAPTAP_THROW_BPF_H

#include "maps.bpf.h"
#include "stack.bpf.h"

/* The loader needs some 100 us; it may be stopped, or this machine may have one CPU. */
#define THROW_PATIENCE_NS 200000000ull
#define THROW_MAX_SPINS	  (8u << 20)
#define THROW_TRIES	  4

#define RINGBUF_FORCE_WAKEUP 2 /* BPF_RB_FORCE_WAKEUP */

struct throw_request throws[THROW_MAX_REQUESTS] = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} throw_events SEC(".maps");

struct throw_wait {
	struct throw_request *request;
	__u64 end_ns;
};

static long throw_is_done(__u64 index, void *context)
{
	struct throw_wait *wait = context;

	if (*(volatile __u32 *)&wait->request->state == THROW_DONE)
		return 1;
	/* The clock costs more than the rest. */
	return !(index & 1023) && bpf_ktime_get_ns() > wait->end_ns;
}

struct throw_search {
	struct throw_request *request;
	struct return_instance *instance;
	__u64 sp;
	__u64 trampoline;
};

/* Notes a probed call that the exception can leave. */
static long throw_note(__u64 index, void *context)
{
	struct throw_search *search = context;
	struct throw_request *request = search->request;
	struct return_instance *instance = search->instance;
	__u64 slot = BPF_CORE_READ(instance, stack), address;
	__u32 at = request->count;

	if (slot >= search->sp && !bpf_probe_read_user(&address, sizeof(address), (void *)slot) &&
	    address == search->trampoline && at < THROW_MAX_RETURNS) {
		request->returns[at].slot = slot;
		request->returns[at].address = BPF_CORE_READ(instance, orig_ret_vaddr);
		request->count = at + 1;
	}
	search->instance = BPF_CORE_READ(instance, next);
	return !search->instance;
}

static __always_inline __u32 throw_fill_in(struct throw_request *request, __u64 sp)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct throw_search search = {
		.request = request,
		.instance = BPF_CORE_READ(task, utask, return_instances),
		.sp = sp,
		.trampoline = trampoline_address(task),
	};

	request->tgid = bpf_get_current_pid_tgid() >> 32;
	request->count = 0;
	if (search.instance)
		bpf_loop(PENDING_RETURN_PROBES, throw_note, &search, 0);
	return request->count;
}

/* One of the CPU's own first: others are taken if a thread waits there. */
static __always_inline struct throw_request *throw_take(void)
{
	__u32 first = bpf_get_smp_processor_id(), i;

	for (i = 0; i < THROW_TRIES; i++) {
		struct throw_request *request = &throws[(first + i) & (THROW_MAX_REQUESTS - 1)];

		if (!__sync_val_compare_and_swap(&request->state, THROW_FREE, THROW_FILLED_IN))
			return request;
	}
	return NULL;
}

__noinline int throw_clear(__u64 sp)
{
	struct throw_wait wait = {.request = throw_take()};
	__u32 event = 0;

	if (!wait.request) {
		loss_add(LOSS_THROW_LATE, 0);
		return 0;
	}
	if (!throw_fill_in(wait.request, sp)) {
		__sync_lock_test_and_set(&wait.request->state, THROW_FREE);
		return 0;
	}
	wait.end_ns = bpf_ktime_get_ns() + THROW_PATIENCE_NS;
	__sync_lock_test_and_set(&wait.request->state, THROW_WAITS);
	bpf_ringbuf_output(&throw_events, &event, sizeof(event), RINGBUF_FORCE_WAKEUP);
	bpf_loop(THROW_MAX_SPINS, throw_is_done, &wait, 0);
	bpf_loop(THROW_MAX_SPINS, throw_is_done, &wait, 0);
	bpf_loop(THROW_MAX_SPINS, throw_is_done, &wait, 0);
	/* What the loader has in its hands stays its own, and is lost to us. */
	if (__sync_val_compare_and_swap(&wait.request->state, THROW_DONE, THROW_FREE) == THROW_DONE)
		return 0;
	loss_add(LOSS_THROW_LATE, 0);
	__sync_val_compare_and_swap(&wait.request->state, THROW_WAITS, THROW_FREE);
	return 0;
}

#endif
