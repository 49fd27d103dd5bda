/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Syscalls that change mappings: for the account of mappings each is told to the loader as an
 * event, see heaptap/mapping.h; for growth what is added is counted here.
 *
 * The programs run at the syscalls' functions, where the kernel can patch them in, which costs
 * others nothing. Elsewhere they run at the syscalls' tracepoints, and every syscall of the machine
 * pays some. Both find the arguments where the thread has left them, in its saved registers. The
 * stack starts at the syscall instruction, by the same registers.
 */
#ifndef HEAPTAP_MAPPING_BPF_H
#define HEAPTAP_MAPPING_BPF_H

#include "heaptap/mapping.h"
#include "maps.bpf.h"
#include "sites.bpf.h"
#include "stack.bpf.h"
#include "thread.bpf.h"

#define PAGE_BYTES 4096ull

#define MAP_SHARED_FLAG	   0x1
#define MAP_FIXED_FLAG	   0x10
#define MAP_ANONYMOUS_FLAG 0x20
#define MAP_HUGETLB_FLAG   0x40000
#define MAP_HUGE_SHIFT	   26
#define HUGE_PAGE_SHIFT	   21

#define MREMAP_DONTUNMAP_FLAG 4

#define PROT_ACCESS    3 /* PROT_READ | PROT_WRITE */
#define VM_ACCESS      3 /* VM_READ | VM_WRITE */
#define VM_SHARED_FLAG 8

#define ADVICE_DONTNEED	       4
#define ADVICE_FREE	       8
#define ADVICE_REMOVE	       9
#define ADVICE_POPULATE_READ   22
#define ADVICE_POPULATE_WRITE  23
#define ADVICE_DONTNEED_LOCKED 24

/* "dev/zero": what the kernel calls the file behind shared anonymous memory. */
#define SHARED_ANONYMOUS_NAME 0x6f72657a2f766564ull

/* What a syscall has found when it began. */
struct mapping_call {
	__u64 brk;
	__u32 anonymous;    /* what it is about */
	__u32 inaccessible; /* likewise, without a right to read or write */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mapping_call);
} mapping_calls SEC(".maps");

/* The loader sets max_entries: MAPPING_RING_SIZE, if it keeps the account. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} mapping_events SEC(".maps");

static __always_inline struct pt_regs *syscall_registers(void)
{
	return (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
}

static __always_inline struct mapping_call *mapping_call(void)
{
	return bpf_task_storage_get(&mapping_calls, bpf_get_current_task_btf(), NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline __u64 page_up(__u64 size)
{
	return (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* A syscall returns an error as the last 4095 numbers. */
static __always_inline bool is_error(long result)
{
	return (__u64)result > -PAGE_BYTES;
}

/* The stack of the syscall that the current thread is in. */
static __always_inline __u64 syscall_stack(__u32 serial, __u64 bytes)
{
	struct pt_regs *registers = syscall_registers();

	return stack_capture(registers->ip, registers->sp, registers->bp, serial,
			     bytes << WEIGHT_BYTES_SHIFT);
}

static __always_inline bool mapping_has_stack(enum mapping_change change)
{
	return change == MAPPING_ADD || change == MAPPING_MOVE;
}

/* Tells the loader. A global function: it is verified once. */
__noinline int mapping_send(__u32 serial, __u32 change, __u64 start, __u64 size, __u32 anonymous)
{
	struct mapping_event *event;
	__u64 stack_id = 0;
	__u32 thread = 0;

	if (mapping_has_stack(change)) {
		stack_id = syscall_stack(serial, size);
		if (settings.label_threads)
			thread = thread_number(size << WEIGHT_BYTES_SHIFT);
	}
	event = bpf_ringbuf_reserve(&mapping_events, sizeof(*event), 0);
	if (!event) {
		loss_add(LOSS_MAPPING_FULL, size << WEIGHT_BYTES_SHIFT);
		return 0;
	}
	event->start = start;
	event->size = size;
	event->stack_id = stack_id;
	event->serial = serial;
	event->thread = thread;
	event->tid = bpf_get_current_pid_tgid();
	event->change = change;
	event->anonymous = anonymous;
	/* The loader reads them for a snapshot; else only so that the ring never fills. */
	bpf_ringbuf_submit(event, bpf_ringbuf_query(&mapping_events, BPF_RB_AVAIL_DATA) >
						  MAPPING_RING_SIZE / 4
					  ? BPF_RB_FORCE_WAKEUP
					  : BPF_RB_NO_WAKEUP);
	return 0;
}

/* Counts what the heap has grown by. */
__noinline int growth_add(__u32 serial, __u64 bytes)
{
	struct live_record record = {};

	record.weight.bytes = bytes << WEIGHT_BYTES_SHIFT;
	record.weight.objects = 1ull << WEIGHT_OBJECTS_SHIFT;
	if (settings.label_threads)
		record.weight.thread = thread_number(record.weight.bytes);
	record.stack_id = syscall_stack(serial, bytes);
	site_add(ACCOUNT_GROWTH, serial, &record);
	return 0;
}

/* Anonymous memory has come; usable: it may be read or written already. */
static __always_inline void mapping_added(__u32 serial, __u64 start, __u64 size, bool usable)
{
	if (!settings.mappings) {
		if (usable)
			growth_add(serial, size);
		return;
	}
	mapping_send(serial, MAPPING_ADD, start, size, 1);
	if (!usable)
		mapping_send(serial, MAPPING_RESERVE, start, size, 1);
}

/* Others fail at once. */
static __always_inline bool munmap_takes(const struct pt_regs *registers)
{
	return registers->si && !(registers->di & (PAGE_BYTES - 1));
}

static __always_inline void munmap_begins(void)
{
	__u32 serial = process_serial();
	struct pt_regs *registers = syscall_registers();

	if (serial && munmap_takes(registers))
		mapping_send(serial, MAPPING_TAKE, registers->di, page_up(registers->si), 0);
}

static __always_inline void munmap_ends(long result)
{
	__u32 serial = process_serial();

	if (serial && result && munmap_takes(syscall_registers()))
		mapping_send(serial, MAPPING_TAKE_BACK, 0, 0, 0);
}

static __always_inline void mmap_ends(long result)
{
	__u32 serial = process_serial(), shift = HUGE_PAGE_SHIFT;
	struct pt_regs *registers = syscall_registers();
	__u64 size = page_up(registers->si), flags = registers->r10;

	if (!serial || is_error(result))
		return;
	if (flags & MAP_HUGETLB_FLAG) {
		if (flags >> MAP_HUGE_SHIFT & 63)
			shift = flags >> MAP_HUGE_SHIFT & 63;
		size = (((size - 1) >> shift) + 1) << shift;
	}
	if (flags & (MAP_ANONYMOUS_FLAG | MAP_HUGETLB_FLAG))
		mapping_added(serial, result, size, registers->dx & PROT_ACCESS);
	else if (flags & MAP_FIXED_FLAG && settings.mappings)
		mapping_send(serial, MAPPING_REMOVE, result, size, 0);
}

/* What is mapped at an address: anonymous memory, and whether it may be used at all. */
__noinline int mapping_look(struct mapping_call *call, __u64 address)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	unsigned long pivots[MAPLE_64_PIVOTS];
	struct vm_area_struct *area;
	const unsigned char *name;
	struct file *file;
	__u64 start = 0;

	if (!call)
		return 0;
	call->anonymous = 0;
	call->inaccessible = 0;
	area = vma_walk(BPF_CORE_READ(task, mm), address, pivots);
	if (!area || address < BPF_CORE_READ(area, vm_start) ||
	    address >= BPF_CORE_READ(area, vm_end))
		return 0;
	file = BPF_CORE_READ(area, vm_file);
	if (file) {
		name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
		bpf_probe_read_kernel(&start, sizeof(start), name);
	}
	call->anonymous = !file || (BPF_CORE_READ(area, vm_flags) & VM_SHARED_FLAG &&
				    start == SHARED_ANONYMOUS_NAME);
	call->inaccessible = !(BPF_CORE_READ(area, vm_flags) & VM_ACCESS);
	return 0;
}

static __always_inline bool mremap_takes(const struct pt_regs *registers)
{
	return registers->si && !(registers->r10 & MREMAP_DONTUNMAP_FLAG) &&
	       !(registers->di & (PAGE_BYTES - 1));
}

static __always_inline void mremap_begins(void)
{
	struct pt_regs *registers = syscall_registers();
	__u32 serial = process_serial();
	struct mapping_call *call;

	if (!serial)
		return;
	call = mapping_call();
	if (call)
		mapping_look(call, registers->di);
	else
		loss_add(LOSS_MAPPING_FULL, 0);
	if (settings.mappings && mremap_takes(registers))
		mapping_send(serial, MAPPING_TAKE, registers->di, page_up(registers->si), 0);
}

static __always_inline void mremap_ends(long result)
{
	struct pt_regs *registers = syscall_registers();
	__u64 old_size = page_up(registers->si), size = page_up(registers->dx);
	__u32 serial = process_serial(), anonymous;
	bool takes = mremap_takes(registers);
	struct mapping_call *call;

	if (!serial)
		return;
	call = mapping_call();
	anonymous = call ? call->anonymous : 0;
	if (!settings.mappings) {
		if (!is_error(result) && anonymous && size > old_size)
			growth_add(serial, size - old_size);
		return;
	}
	if (is_error(result)) {
		if (takes)
			mapping_send(serial, MAPPING_TAKE_BACK, 0, 0, 0);
		return;
	}
	if (takes) {
		mapping_send(serial, MAPPING_MOVE, result, size, anonymous);
		return;
	}
	/* A second mapping of the same pages, or in place of the first. */
	mapping_send(serial, anonymous ? MAPPING_ADD : MAPPING_REMOVE, result, size, 0);
	if (old_size)
		mapping_send(serial, MAPPING_RESERVE, registers->di, old_size, 0);
}

static __always_inline void brk_begins(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct mapping_call *call;

	if (!process_serial())
		return;
	call = mapping_call();
	if (call)
		call->brk = BPF_CORE_READ(task, mm, brk);
	else
		loss_add(LOSS_MAPPING_FULL, 0);
}

static __always_inline void brk_ends(long result)
{
	__u32 serial = process_serial();
	struct mapping_call *call;
	__u64 before, after;

	if (!serial)
		return;
	call = mapping_call();
	if (!call || !call->brk)
		return;
	before = page_up(call->brk);
	after = page_up(result);
	if (after > before)
		mapping_added(serial, before, after - before, true);
	else if (after < before && settings.mappings)
		mapping_send(serial, MAPPING_REMOVE, after, before - after, 0);
}

static __always_inline void madvise_ends(long result)
{
	struct pt_regs *registers = syscall_registers();
	__u32 serial = process_serial(), change = 0;

	if (!serial || result)
		return;
	switch ((__u32)registers->dx) {
	case ADVICE_DONTNEED:
	case ADVICE_DONTNEED_LOCKED:
	case ADVICE_FREE:
	case ADVICE_REMOVE:
		change = MAPPING_RESERVE;
		break;
	case ADVICE_POPULATE_READ:
	case ADVICE_POPULATE_WRITE:
		change = MAPPING_USE;
		break;
	}
	if (change && registers->si)
		mapping_send(serial, change, registers->di, page_up(registers->si), 0);
}

/* glibc's arenas, musl, Go and Java reserve address space first, and make it usable later. */
static __always_inline void mprotect_begins(void)
{
	struct pt_regs *registers = syscall_registers();
	struct mapping_call *call;

	if (!(registers->dx & PROT_ACCESS) || !process_serial())
		return;
	call = mapping_call();
	if (call)
		mapping_look(call, registers->di);
	else
		loss_add(LOSS_MAPPING_FULL, 0);
}

static __always_inline void mprotect_ends(long result)
{
	struct pt_regs *registers = syscall_registers();
	__u64 size = page_up(registers->si);
	__u32 serial = process_serial();
	struct mapping_call *call;

	if (result || !serial || !size)
		return;
	if (!(registers->dx & PROT_ACCESS)) {
		if (settings.mappings)
			mapping_send(serial, MAPPING_RESERVE, registers->di, size, 0);
		return;
	}
	call = mapping_call();
	if (!call || !call->anonymous || !call->inaccessible)
		return;
	if (settings.mappings)
		mapping_send(serial, MAPPING_USE, registers->di, size, 0);
	else
		growth_add(serial, size);
}

#define SYSCALL_BEGINS(name)                                                                       \
	SEC("fentry/__x64_sys_" #name) int name##_fentry(void *ctx)                                \
	{                                                                                          \
		name##_begins();                                                                   \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tracepoint/syscalls/sys_enter_" #name) int name##_enter(void *ctx)                    \
	{                                                                                          \
		name##_begins();                                                                   \
		return 0;                                                                          \
	}

#define SYSCALL_ENDS(name)                                                                         \
	SEC("fexit/__x64_sys_" #name)                                                              \
	int BPF_PROG(name##_fexit, const struct pt_regs *registers, long result)                   \
	{                                                                                          \
		name##_ends(result);                                                               \
		return 0;                                                                          \
	}                                                                                          \
	SEC("tracepoint/syscalls/sys_exit_" #name)                                                 \
	int name##_exit(struct trace_event_raw_sys_exit *ctx)                                      \
	{                                                                                          \
		name##_ends(ctx->ret);                                                             \
		return 0;                                                                          \
	}

SYSCALL_ENDS(mmap)
SYSCALL_BEGINS(munmap)
SYSCALL_ENDS(munmap)
SYSCALL_BEGINS(mremap)
SYSCALL_ENDS(mremap)
SYSCALL_BEGINS(brk)
SYSCALL_ENDS(brk)
SYSCALL_ENDS(madvise)
SYSCALL_BEGINS(mprotect)
SYSCALL_ENDS(mprotect)

#endif
