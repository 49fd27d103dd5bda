/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Page faults of the scope's processes: what each has made resident, sampled by these bytes.
 *
 * Three software events tell of a fault: one before it is handled, and one of two after. What maps
 * the address is looked up at both, so that a fault which only changes a right counts nothing.
 * Every fault runs a program, as a period of the event's own would pick the same faults again and
 * again of a program that touches its memory in a fixed order.
 */
#ifndef HEAPTAP_FAULTS_BPF_H
#define HEAPTAP_FAULTS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "maps.bpf.h"
#include "pages.bpf.h"
#include "pick.bpf.h"
#include "process.bpf.h"
#include "sites.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"
#include "vma.bpf.h"

/* The loader fills it and runs find_page_tables(), which fills the other. */
struct page_proof page_proof = {};
volatile struct page_tables page_tables = {};

/* Of a thread that is in a fault. */
struct fault_start {
	__u64 address;
	struct page_before before;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault_start);
} fault_starts SEC(".maps");

/* Of one of the events, on this CPU. */
struct fault_runs {
	__u64 runs;
	__u64 missed; /* faults that the event has counted and not told of */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAULT_KINDS);
	__type(key, __u32);
	__type(value, struct fault_runs);
} fault_runs SEC(".maps");

static int page_table_read(__u64 *entries, __u32 size, __u64 address)
{
	return bpf_probe_read_kernel(entries, size, (const void *)address);
}

/* Tries one place where physical memory may begin. Returns 1 once it is found. */
static long page_base_try(__u32 i, void *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 pgd = (__u64)BPF_CORE_READ(task, mm, pgd), words[PAGE_PROOF_WORDS];
	struct page_tables tables = {};
	struct page_leaf leaf;
	int word;

	tables.base = (pgd & ~(PAGE_BASE_STEP - 1)) - i * PAGE_BASE_STEP;
	if (bpf_probe_read_kernel(words, sizeof(words),
				  (void *)(tables.base + page_proof.physical)))
		return 0;
	for (word = 0; word < PAGE_PROOF_WORDS; word++)
		if (words[word] != page_proof.words[word])
			return 0;
	for (tables.levels = 4; tables.levels <= PAGE_MAX_LEVELS; tables.levels++) {
		if (page_leaf_find(&tables, pgd, page_proof.address, &leaf) ||
		    !(leaf.entry & PAGE_PRESENT) ||
		    page_physical(&leaf, page_proof.address) != page_proof.physical)
			continue;
		page_tables.base = tables.base;
		page_tables.levels = tables.levels;
		return 1;
	}
	return 0;
}

/* What maps an address of the current process. */
static __always_inline bool page_now(struct task_struct *task, __u64 address,
				     struct page_leaf *leaf)
{
	struct mm_struct *mm = task->mm;

	return page_tables.levels && mm &&
	       !page_leaf_find(&page_tables, (__u64)BPF_CORE_READ(mm, pgd), address, leaf);
}

static __always_inline void fault_begin(__u64 address)
{
	struct task_struct *task;
	struct fault_start *start;

	if (!process_serial())
		return;
	task = bpf_get_current_task_btf();
	start = bpf_task_storage_get(&fault_starts, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!start)
		return;
	/* Not to be read for anything else. */
	start->address = ~0ull;
	if (!page_now(task, address, &start->before.leaf))
		return;
	if (start->before.leaf.shift == PAGE_SHIFT_SMALL &&
	    !(start->before.leaf.entry & PAGE_PRESENT))
		page_note_present(&page_tables, &start->before);
	start->address = address;
}

/* What fault_bytes() says besides a number of bytes, which is a multiple of pages. */
#define FAULT_WRITABLE 1
#define FAULT_LARGE    2
#define FAULT_FLAGS    ((1u << PAGE_SHIFT_SMALL) - 1)

/* The pages of a large folio that a fault has mapped. */
__noinline __u32 fault_folio(__u64 slot, __u64 entry)
{
	const struct page_leaf after = {.entry = entry, .shift = PAGE_SHIFT_SMALL, .slot = slot};
	struct fault_start *start;

	start = bpf_task_storage_get(&fault_starts, bpf_get_current_task_btf(), NULL, 0);
	return start ? page_count_folio(&page_tables, &start->before, &after) : 0;
}

/* The small pages that a fault has mapped where there was none. */
static __always_inline __u32 fault_pages(const struct fault_start *start,
					 const struct page_leaf *after)
{
	__u32 count;

	/* Where there are no large folios, other threads' faults are not to be taken for one. */
	if (after->entry & PAGE_DIRTY)
		count = page_tables.blocks ? fault_folio(after->slot, after->entry) : 1;
	else
		count = page_count_file(&page_tables, &start->before, after);
	/* Its table was changed meanwhile; one there was. */
	return count ? count : 1;
}

/*
 * What a fault has made resident, with flags; where page tables cannot be read, one page. Without a
 * start it counts as if nothing had been there. A global function, as what follows: its place on
 * the stack is not there any more when stacks are walked.
 */
__noinline __u64 fault_bytes(__u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fault_start *start = bpf_task_storage_get(&fault_starts, task, NULL, 0);
	bool started = start && start->address == address;
	struct page_leaf after;
	__u64 flags = 0;

	if (!started && !process_serial())
		return 0;
	if (!page_now(task, address, &after))
		return 1 << PAGE_SHIFT_SMALL | FAULT_WRITABLE;
	if (after.entry & PAGE_WRITABLE)
		flags |= FAULT_WRITABLE;
	if (after.shift != PAGE_SHIFT_SMALL)
		flags |= FAULT_LARGE;
	if (!started)
		return after.entry & PAGE_PRESENT && !(after.entry & PAGE_SPECIAL)
			       ? 1ull << (after.shift & 63) | flags
			       : 0;
	if (!page_made_resident(&start->before.leaf, &after, address))
		return 0;
	if (flags & FAULT_LARGE || start->before.leaf.entry & PAGE_PRESENT)
		return 1ull << (after.shift & 63) | flags;
	return (__u64)fault_pages(start, &after) << PAGE_SHIFT_SMALL | flags;
}

/* Whose memory an address is; ACCOUNT_COUNT if it is the huge zero page. */
__noinline int fault_account(__u64 address, __u32 flags)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct maple_pivots pivots = {};
	struct vm_area_struct *area;
	__u64 start, end, stack;

	area = vma_find(mm, address, &pivots, &start, &end);
	if (!area) {
		loss_add(LOSS_FAULT_KIND, 0);
		return ACCOUNT_FAULT_ANONYMOUS;
	}
	if (!BPF_CORE_READ(area, vm_ops)) {
		/* Before 6.18 its entry has no mark; memory of one's own is writable at once. */
		if (flags & FAULT_LARGE && !(flags & FAULT_WRITABLE))
			return ACCOUNT_COUNT;
		stack = BPF_CORE_READ(mm, start_stack);
		return stack >= start && stack <= end ? ACCOUNT_FAULT_STACK
						      : ACCOUNT_FAULT_ANONYMOUS;
	}
	/* A page of a private file mapping that can be written is a copy. */
	return BPF_CORE_READ(area, vm_flags) & VM_SHARED || !(flags & FAULT_WRITABLE)
		       ? ACCOUNT_FAULT_FILE
		       : ACCOUNT_FAULT_ANONYMOUS;
}

/* The event has counted faults that the program was not run for: another program was running. */
static __always_inline void fault_missed(struct bpf_perf_event_data *ctx, struct fault_runs *runs)
{
	struct bpf_perf_event_value value;
	__u64 missed;

	if (bpf_perf_prog_read_value(ctx, &value, sizeof(value)) || value.counter < runs->runs)
		return;
	missed = value.counter - runs->runs;
	if (missed > runs->missed) {
		loss_add_count(LOSS_FAULT_MISSED, missed - runs->missed, 0);
		runs->missed = missed;
	}
}

/* One that has no stack: the new program has no code yet that could have asked for it. */
__noinline int fault_in_exec(__u64 bytes)
{
	struct weight weight;

	sampler_weight(&sampling, bytes, &weight);
	loss_add(LOSS_FAULT_EXEC, weight.bytes);
	return 0;
}

/* Beside the account in an argument: a function has five at most. */
#define FAULT_IN_KERNEL (1u << 31)

/* A fault that is to be counted. pc, sp and bp are the thread's, in its own code. */
__noinline int fault_picked(__u64 pc, __u64 sp, __u64 bp, __u64 bytes, __u32 account_flags)
{
	__u32 serial = process_serial(), account = account_flags & ~FAULT_IN_KERNEL;
	struct live_record record = {};

	if (!serial)
		return 0;
	sampler_weight(&sampling, bytes, &record.weight);
	if (settings.label_threads)
		record.weight.thread = thread_number(record.weight.bytes);
	if (!page_tables.levels)
		loss_add(LOSS_FAULT_SIZE, record.weight.bytes);
	record.stack_id = stack_capture(
		pc, sp, bp, serial | (account_flags & FAULT_IN_KERNEL ? 0 : STACK_INTERRUPTED),
		record.weight.bytes);
	site_add(account, serial, &record);
	return 0;
}

static __always_inline void fault_end(struct bpf_perf_event_data *ctx, enum fault_kind kind)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 pc = ctx->regs.ip, sp = ctx->regs.sp, bp = ctx->regs.bp, bytes;
	__u32 key = kind, flags = 0;
	struct fault_runs *runs;
	struct pt_regs *regs;
	int account;

	runs = bpf_map_lookup_elem(&fault_runs, &key);
	if (!runs)
		return;
	runs->runs++;
	bytes = fault_bytes(ctx->addr);
	if (!bytes || !sampler_picks(bytes & ~(__u64)FAULT_FLAGS))
		return;
	fault_missed(ctx, runs);
	account = fault_account(ctx->addr, bytes & FAULT_FLAGS);
	bytes &= ~(__u64)FAULT_FLAGS;
	if (account == ACCOUNT_COUNT)
		return;
	if (bpf_core_field_exists(task->in_execve) &&
	    BPF_CORE_READ_BITFIELD_PROBED(task, in_execve)) {
		fault_in_exec(bytes);
		return;
	}
	/* Of the kernel, by its address. */
	if ((long)pc < 0) {
		regs = (struct pt_regs *)bpf_task_pt_regs(task);
		pc = regs->ip;
		sp = regs->sp;
		bp = regs->bp;
		/* In a system call; else the kernel prepares the handler of a signal. */
		if ((long)regs->orig_ax >= 0)
			flags = FAULT_IN_KERNEL;
	}
	fault_picked(pc, sp, bp, bytes, account | flags);
}

#endif
