/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The programs that run at probe points and at a target's exec and exit.
 *
 * An unsampled allocation costs one trap and ends in sampler_picks(); an unsampled free ends in
 * live_possible(). Everything behind those two runs once per sample.
 *
 * Where the kernel has uprobe sessions, one program is called at entry and, unless it says no, at
 * return. Elsewhere each function has an entry and a return probe with a program each.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "maps.bpf.h"
#include "fork.bpf.h"
#include "live.bpf.h"
#include "sites.bpf.h"
#include "faults.bpf.h"
#include "pending.bpf.h"
#include "pick.bpf.h"
#include "process.bpf.h"
#include "record.bpf.h"
#include "registers.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"
#include "throw.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* What a session program answers at entry; other programs may only answer 0. */
#define RUN_AT_RETURN 0
#define NO_RETURN     1

/* A call was picked at its entry, and stands for others. */
static __always_inline void calls_note(__u32 serial, const struct weight *weight)
{
	struct call_counts *counts;
	__u32 key = 0;

	counts = bpf_map_lookup_elem(&calls, &key);
	if (!counts || !epochs.active)
		return;
	__sync_fetch_and_add(serial ? &counts->inside : &counts->outside, weight->objects);
	__sync_fetch_and_add(serial ? &counts->picked_inside : &counts->picked_outside, 1);
}

/*
 * Whether an allocation function made the call whose return address lies at sp, and so counts it
 * itself. base: where the image's file begins in memory; bytes: what the call stands for.
 */
static __always_inline bool is_nested(__u32 serial, __u32 image, __u64 sp, __u64 base, __u64 bytes)
{
	__u64 address, key;

	if (!nested_kinds)
		return false;
	if (bpf_probe_read_user(&address, sizeof(address), (void *)sp)) {
		loss_add(LOSS_NESTED_UNKNOWN, bytes);
		return false;
	}
	/* What is further away is in another image. */
	if (nested_kinds & NESTED_HERE && !((address - base) >> 32)) {
		key = nested_call_here(image, address - base);
		if (bpf_map_lookup_elem(&nested_calls, &key))
			return true;
	}
	if (nested_kinds & NESTED_FOREIGN) {
		key = frame_of(address, serial);
		if (!key)
			loss_add(LOSS_NESTED_UNKNOWN, bytes);
		if (bpf_map_lookup_elem(&nested_calls, &key))
			return true;
	}
	return false;
}

/*
 * What follows the hot paths is in global functions: each is verified once, by itself, instead of
 * once for every way through the hot path.
 */

/*
 * An allocation whose return must not be probed is counted at its entry; its block is not known, so
 * in use it cannot count. bp: the caller's, as all registers there.
 */
static __always_inline void alloc_unreturned(__u32 serial, __u64 sp, __u64 bp,
					     const struct weight *weight)
{
	struct live_record record;
	__u64 pc;

	if (bpf_probe_read_user(&pc, sizeof(pc), (void *)sp))
		return;
	record_make(&record, pc, sp + 8, bp, serial, weight);
	site_alloc(serial, &record);
	loss_add(LOSS_LIVE_UNKNOWN, weight->bytes);
	site_freed(serial, &record);
}

/* Beside the image in an argument: a function has five at most. */
#define ALLOC_ENTRY_ONLY (1u << 31)

/* Of user addresses with four-level page tables; more must be asked for by address. */
#define ADDRESS_BITS 47

/*
 * An allocation was picked at its entry. out: posix_memalign's result pointer, else 0; with
 * ALLOC_ENTRY_ONLY the register bp.
 */
__noinline int alloc_picked(__u32 image_flags, __u64 size, __u64 out, __u64 sp, __u64 base)
{
	__u32 serial = process_serial();
	struct weight weight;
	struct pending *call;

	/* No address space has so much: it fails, and often leaves with an exception. */
	if (size >> ADDRESS_BITS)
		return NO_RETURN;
	sampler_weight(&sampling, size, &weight);
	calls_note(serial, &weight);
	if (!serial || is_nested(serial, image_flags & 255, sp, base, weight.bytes))
		return NO_RETURN;
	if (image_flags & ALLOC_ENTRY_ONLY) {
		alloc_unreturned(serial, sp, out, &weight);
		return NO_RETURN;
	}
	call = pending_push(serial, sp, weight.bytes);
	if (!call)
		return NO_RETURN;
	call->picked = 1;
	call->weight = weight;
	call->size = size;
	call->out = out;
	return RUN_AT_RETURN;
}

static __always_inline int alloc_entered(struct pt_regs *ctx)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	__u64 size = register_read(ctx, spec.size_reg), out = 0;

	if (spec.generation != generation)
		return NO_RETURN;
	if (spec.kind == PROBE_CALLOC)
		size *= register_read(ctx, spec.aux_reg);
	else if (spec.flags & PROBE_SKIP_SMALL_ALIGN &&
		 register_read(ctx, spec.aux_reg) <= PROBE_SMALL_ALIGN)
		return NO_RETURN;
	if (!sampler_picks(size))
		return NO_RETURN;
	if (spec.flags & PROBE_ENTRY_ONLY)
		out = ctx->bp;
	else if (spec.kind == PROBE_OUT_ALLOC)
		out = register_read(ctx, spec.ptr_reg);
	return alloc_picked(spec.image | (spec.flags & PROBE_ENTRY_ONLY ? ALLOC_ENTRY_ONLY : 0),
			    size, out, ctx->sp, ctx->ip - spec.offset)
		       ? NO_RETURN
		       : RUN_AT_RETURN;
}

/*
 * What the call has left that has returned to a caller with the stack pointer sp, and the serial of
 * its process; NULL if there is nothing to be done.
 */
static __always_inline struct pending *call_returned(__u64 sp, __u32 *serial)
{
	struct pending_calls *calls = pending_get(0);
	bool waiting = calls && calls->count;
	struct pending *call = NULL;

	/* Without sessions nearly every return is that of a call which left nothing. */
	if (!waiting && !settings.session)
		return NULL;
	*serial = process_serial();
	if (!*serial)
		return NULL;
	/* The return has popped the return address. */
	if (waiting)
		call = pending_pop(calls, *serial, sp - 8);
	if (!call && settings.session)
		loss_add(LOSS_RETURN_UNMATCHED, 0);
	return call;
}

/* A picked allocation succeeded. pc, sp and bp are the caller's. */
static __always_inline void alloc_record(__u64 pc, __u64 sp, __u64 bp, __u32 serial, __u64 address,
					 const struct weight *weight)
{
	struct live_record record;

	record_make(&record, pc, sp, bp, serial, weight);
	record_add(serial, address, &record);
}

__noinline int alloc_returned(__u64 address, __u64 pc, __u64 sp, __u64 bp)
{
	__u32 serial = 0;
	struct pending *call = call_returned(sp, &serial);

	if (!call)
		return 0;
	if (call->out) {
		/* posix_memalign returns 0 or an error number, and an int at that. */
		if ((__u32)address)
			return 0;
		if (bpf_probe_read_user(&address, sizeof(address), (void *)call->out)) {
			loss_add(LOSS_OUT_FAULT, call->weight.bytes);
			return 0;
		}
	}
	if (address)
		alloc_record(pc, sp, bp, serial, address, &call->weight);
	return 0;
}

/* Beside the image in an argument: a function has five at most. */
#define REALLOC_PICKED	 (1u << 31)
#define REALLOC_IN_PLACE (1u << 30)

/* A realloc was picked, or its old block may be a live sample. */
__noinline int realloc_wanted(__u32 image_flags, __u64 size, __u64 old_address, __u64 sp,
			      __u64 base)
{
	/* As in alloc_picked(), with so much it fails. */
	bool picked = image_flags & REALLOC_PICKED && !(size >> ADDRESS_BITS);
	__u32 serial = process_serial();
	struct weight weight = {};
	struct pending *call;

	if (picked) {
		sampler_weight(&sampling, size, &weight);
		calls_note(serial, &weight);
	}
	if (!serial || is_nested(serial, image_flags & 255, sp, base, weight.bytes))
		return NO_RETURN;
	call = pending_push(serial, sp, weight.bytes);
	if (!call)
		return NO_RETURN;
	call->size = size;
	call->out = 0;
	call->in_place = !!(image_flags & REALLOC_IN_PLACE);
	call->old_address = old_address;
	call->picked = picked;
	call->weight = weight;
	/* Out of the table now: once realloc has freed it, another thread may get the address. */
	if (old_address && live_possible(old_address))
		call->has_old = live_take(serial, old_address, &call->old) ||
				pending_take_old(old_address, &call->old);
	return RUN_AT_RETURN;
}

/* Of reallocarray the product: one that wraps around to 0 would pass for a free. */
static __noinline __u64 realloc_size(struct pt_regs *ctx, __u64 product)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	__u64 count = register_read(ctx, spec.aux_reg);

	if (spec.kind == PROBE_REALLOCARRAY && count &&
	    product / count != register_read(ctx, spec.size_reg))
		return ~0ull;
	return product;
}

static __always_inline int realloc_entered(struct pt_regs *ctx)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	__u64 old_address = register_read(ctx, spec.ptr_reg);
	__u64 size = register_read(ctx, spec.size_reg);
	bool picked;

	if (spec.generation != generation)
		return NO_RETURN;
	if (!old_address && spec.flags & PROBE_SKIP_NULL_OLD)
		return NO_RETURN;
	if (spec.kind == PROBE_REALLOCARRAY)
		size *= register_read(ctx, spec.aux_reg);
	picked = sampler_picks(size);
	if (!picked && !(old_address && live_possible(old_address)))
		return NO_RETURN;
	return realloc_wanted(spec.image | (spec.kind == PROBE_RESIZE ? REALLOC_IN_PLACE : 0) |
				      (picked ? REALLOC_PICKED : 0),
			      realloc_size(ctx, size), old_address, ctx->sp, ctx->ip - spec.offset)
		       ? NO_RETURN
		       : RUN_AT_RETURN;
}

__noinline int realloc_returned(__u64 address, __u64 pc, __u64 sp, __u64 bp)
{
	__u32 serial = 0;
	struct pending *call = call_returned(sp, &serial);

	if (!call)
		return 0;
	if (call->in_place)
		address = address >= call->size ? call->old_address : 0;
	/* realloc(p, 0) that returns NULL has freed p; any other NULL is a failure that keeps it.
	 */
	if (!address && call->size) {
		pending_restore(serial, call);
		return 0;
	}
	if (call->has_old) {
		live_forget(call->old_address);
		site_freed(serial, &call->old);
	} else if (settings.fork_copy && call->old_address) {
		fork_freed_by_realloc(serial, call->old_address);
	}
	if (address && call->picked)
		alloc_record(pc, sp, bp, serial, address, &call->weight);
	return 0;
}

/* The block may be a live sample. */
__noinline int free_wanted(__u64 address)
{
	struct live_record record;
	__u32 serial = process_serial();
	bool due;

	if (!serial)
		return 0;
	due = fork_is_due(serial);
	if (live_take(serial, address, &record) || pending_take_old(address, &record) ||
	    (due && fork_freed(serial, address, &record))) {
		live_forget(address);
		site_freed(serial, &record);
	}
	return 0;
}

static __always_inline void free_entered(struct pt_regs *ctx)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	__u64 address = register_read(ctx, spec.ptr_reg);

	if (address && spec.generation == generation && live_possible(address))
		free_wanted(address);
}

/* At entry the instruction pointer is the probe's, at return it is not. */
static __always_inline bool is_return(struct pt_regs *ctx)
{
	return bpf_get_func_ip(ctx) != ctx->ip;
}

SEC("uprobe")
int alloc_session(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_sessions);
	if (!is_return(ctx))
		return alloc_entered(ctx);
	alloc_returned(ctx->ax, ctx->ip, ctx->sp, ctx->bp);
	return 0;
}

SEC("uprobe")
int realloc_session(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_sessions);
	if (!is_return(ctx))
		return realloc_entered(ctx);
	realloc_returned(ctx->ax, ctx->ip, ctx->sp, ctx->bp);
	return 0;
}

SEC("uprobe")
int alloc_enter(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	alloc_entered(ctx);
	return 0;
}

SEC("uretprobe")
int alloc_return(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	alloc_returned(ctx->ax, ctx->ip, ctx->sp, ctx->bp);
	return 0;
}

SEC("uprobe")
int realloc_enter(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	realloc_entered(ctx);
	return 0;
}

SEC("uretprobe")
int realloc_return(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	realloc_returned(ctx->ax, ctx->ip, ctx->sp, ctx->bp);
	return 0;
}

SEC("uprobe")
int free_enter(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	free_entered(ctx);
	return 0;
}

#include "sampled.bpf.h"

/*
 * _Unwind_RaiseException(), where every C++ exception begins. Whoever runs: return probes are not
 * limited to targets either.
 */
SEC("uprobe.s")
int throw_enter(struct pt_regs *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (BPF_CORE_READ(task, utask, return_instances))
		throw_clear(ctx->sp);
	return 0;
}

/* Software perf events: before a page fault is handled, and after. */
SEC("perf_event")
int fault_enter(struct bpf_perf_event_data *ctx)
{
	fault_begin(ctx->addr);
	return 0;
}

SEC("perf_event")
int fault_minor(struct bpf_perf_event_data *ctx)
{
	fault_end(ctx, FAULT_MINOR);
	return 0;
}

SEC("perf_event")
int fault_major(struct bpf_perf_event_data *ctx)
{
	fault_end(ctx, FAULT_MAJOR);
	return 0;
}

/* Run by the loader, of whose page_proof tells. */
SEC("syscall")
int find_page_tables(void *ctx)
{
	bpf_loop(PAGE_BASES, page_base_try, NULL, 0);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = BPF_CORE_READ(child, tgid), parent_tgid = BPF_CORE_READ(parent, tgid);
	struct process_record *process, record = {.shared = 1};
	struct mm_struct *mm = BPF_CORE_READ(child, mm);
	bool known;

	/* A thread is no process; one of the kernel becomes one when it executes a program. */
	if (BPF_CORE_READ(child, pid) != (int)tgid || !mm)
		return 0;
	process = bpf_map_lookup_elem(&processes, &parent_tgid);
	known = process && !process->held;
	if (known)
		record.serial = process->serial;
	if (known && !settings.follow && settings.scope == SCOPE_PROCESSES)
		__sync_fetch_and_add(&child_count, 1);
	if (!(known && settings.follow) && !scope_has(child))
		return 0;
	if (!known || mm != BPF_CORE_READ(parent, mm))
		process_enter(child, parent_tgid, record.serial, 0);
	else if (bpf_map_update_elem(&processes, &tgid, &record, BPF_ANY))
		loss_add(LOSS_PROCESS_FULL, 0);
	else
		__sync_fetch_and_add(&process_count, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_exec, struct task_struct *task)
{
	__u32 tgid = BPF_CORE_READ(task, tgid), old;
	struct process_record *process = bpf_map_lookup_elem(&processes, &tgid);
	struct process_info *info;

	if (!process) {
		if (scope_has(task))
			process_enter(task, 0, 0, 1);
		return 0;
	}
	old = process->serial;
	if (process->held) {
		info = bpf_map_lookup_elem(&process_infos, &old);
		if (info)
			BPF_CORE_READ_STR_INTO(&info->comm, task, comm);
		process->held = 0;
		return 0;
	}
	/* What it was in the middle of belongs to the memory that it leaves. */
	pending_leave(old, task);
	process->serial = process_number(task, 0, 0, 1);
	if (!process->shared)
		process_gone(old, PROCESS_EXECUTED, 0, task);
	process->shared = 0;
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	__u32 tgid = BPF_CORE_READ(task, tgid), serial, shared, last;
	struct process_record *process = bpf_map_lookup_elem(&processes, &tgid);

	if (!process) {
		/* Where all threads end at once, the first one may have found itself the last. */
		pending_leave_last(task);
		return 0;
	}
	serial = process->serial;
	shared = process->shared;
	/* A thread that dies inside realloc has not freed the old block. */
	pending_leave(serial, task);
	/* The last thread ends the process, whichever it is. */
	if (BPF_CORE_READ(task, signal, live.counter) || bpf_map_delete_elem(&processes, &tgid))
		return 0;
	last = __sync_fetch_and_add(&process_count, -1) == 1;
	if (!shared)
		process_gone(serial, PROCESS_EXITED, last, task);
	/* While probes are placed, not all that are in the scope are known yet. */
	if (last && epochs.active && settings.scope != SCOPE_ALL)
		process_last_left();
	return 0;
}

/*
 * A process has been moved to another cgroup, which may be the scope's. The kernel tells of every
 * hierarchy, in each of which the numbers begin anew, and of processes that have ended.
 */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(process_moved, struct cgroup *to, const char *path, struct task_struct *task)
{
	__u32 tgid = BPF_CORE_READ(task, tgid);
	struct process_record *process = bpf_map_lookup_elem(&processes, &tgid);

	if (process)
		process_move(process->serial, task);
	else if (scope_has(task) && BPF_CORE_READ(task, signal, live.counter) > 0)
		process_enter(task, 0, 0, 0);
	return 0;
}

/*
 * Tells the loader which image ids its files have, before any target maps them: the loader maps
 * them itself and reads this iterator. Their identity in the kernel (behind overlayfs, say) cannot
 * be learnt from stat().
 */
SEC("iter/task_vma")
int identify_image(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *area = ctx->vma;
	struct task_struct *task = ctx->task;
	struct image_identity identity = {};
	struct image_look look = {};
	struct vma vma = {};
	struct file *file;

	if (!task || !area || BPF_CORE_READ(task, tgid) != (int)identify_tgid)
		return 0;
	vma.start = BPF_CORE_READ(area, vm_start);
	vma.end = BPF_CORE_READ(area, vm_end);
	file = BPF_CORE_READ(area, vm_file);
	if (!file || vma.start < identify_start || vma.start >= identify_end)
		return 0;
	identity.start = vma.start;
	identity.id = image_id(&look, identify_tgid, file, &vma);
	bpf_seq_write(ctx->meta->seq, &identity, sizeof(identity));
	return 0;
}

/* Run by the loader: makes the copies of fork_batch, and ends it if these were the last ones. */
SEC("syscall")
int fork_copy(void *ctx)
{
	bpf_loop(fork_batch.count, fork_copy_next, NULL, 0);
	if (fork_batch.done) {
		fork_end(fork_batch.serial);
		/* Not before all that the child has is there. */
		epoch_check();
	}
	return 0;
}

#include "mapping.bpf.h"
