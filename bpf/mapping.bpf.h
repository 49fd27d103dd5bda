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

#define PROT_ACCESS 3 /* PROT_READ | PROT_WRITE */
#define VM_ACCESS   3 /* VM_READ | VM_WRITE */

#define ADVICE_DONTNEED	       4
#define ADVICE_FREE	       8
#define ADVICE_REMOVE	       9
#define ADVICE_POPULATE_READ   22
#define ADVICE_POPULATE_WRITE  23
#define ADVICE_DONTNEED_LOCKED 24

/* "dev/zero": what the kernel calls the file behind shared anonymous memory. */
#define SHARED_ANONYMOUS_NAME 0x6f72657a2f766564ull

/* What a syscall is about. */
#define FOUND_MAPPING	   1 /* so the others are known */
#define FOUND_ANONYMOUS	   2
#define FOUND_INACCESSIBLE 4 /* without a right to read or write */

/* What a syscall has found when it began, until it ends. */
struct mapping_call {
	__u64 brk;   /* 0: not known */
	__u32 found; /* FOUND_*; 0: not known */
	__u32 pad;
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

/* NULL if there is no memory: nothing is known then when the syscall ends. */
static __always_inline struct mapping_call *mapping_call(void)
{
	return bpf_task_storage_get(&mapping_calls, bpf_get_current_task_btf(), NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Leaves nothing to the next syscall, whose beginning the kernel may run no program at. */
static __always_inline struct mapping_call mapping_call_take(void)
{
	struct mapping_call *call = mapping_call(), taken = {};

	if (call) {
		taken = *call;
		call->brk = 0;
		call->found = 0;
	}
	return taken;
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

/* What is mapped at an address, as FOUND_*. */
__noinline __u32 mapping_look(__u64 address)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct maple_pivots pivots = {};
	unsigned long flags;
	__u64 start, end, begins = 0;
	struct vm_area_struct *area;
	__u32 found = FOUND_MAPPING;
	const unsigned char *name;
	struct file *file;

	area = vma_find(BPF_CORE_READ(task, mm), address, &pivots, &start, &end);
	if (!area)
		return 0;
	flags = BPF_CORE_READ(area, vm_flags);
	file = BPF_CORE_READ(area, vm_file);
	if (file) {
		name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
		bpf_probe_read_kernel(&begins, sizeof(begins), name);
	}
	if (!file || (flags & VM_SHARED && begins == SHARED_ANONYMOUS_NAME))
		found |= FOUND_ANONYMOUS;
	if (!(flags & VM_ACCESS))
		found |= FOUND_INACCESSIBLE;
	return found;
}

static __always_inline void mapping_note(__u64 address)
{
	struct mapping_call *call = mapping_call();

	if (call)
		call->found = mapping_look(address);
}

/* A syscall has succeeded, of which it is not known what it was about. */
static __always_inline void mapping_unknown(__u64 bytes)
{
	loss_add(LOSS_MAPPING_UNKNOWN, bytes << WEIGHT_BYTES_SHIFT);
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

	if (!serial)
		return;
	mapping_note(registers->di);
	if (settings.mappings && mremap_takes(registers))
		mapping_send(serial, MAPPING_TAKE, registers->di, page_up(registers->si), 0);
}

static __always_inline void mremap_ends(long result)
{
	struct pt_regs *registers = syscall_registers();
	__u64 old_size = page_up(registers->si), size = page_up(registers->dx);
	__u32 serial = process_serial(), found, anonymous;
	bool takes = mremap_takes(registers);

	if (!serial)
		return;
	found = mapping_call_take().found;
	if (is_error(result)) {
		if (settings.mappings && takes)
			mapping_send(serial, MAPPING_TAKE_BACK, 0, 0, 0);
		return;
	}
	if (!settings.mappings && size <= old_size)
		return;
	if (!found)
		mapping_unknown(size > old_size ? size - old_size : 0);
	anonymous = !!(found & FOUND_ANONYMOUS);
	if (!settings.mappings) {
		if (anonymous)
			growth_add(serial, size - old_size);
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
}

static __always_inline void brk_ends(long result)
{
	__u32 serial = process_serial();
	__u64 before, after;

	if (!serial)
		return;
	before = page_up(mapping_call_take().brk);
	after = page_up(result);
	if (!before) {
		/* Else it has only said where the break is. */
		if ((__u64)result == syscall_registers()->di)
			mapping_unknown(0);
		return;
	}
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

	if (registers->dx & PROT_ACCESS && process_serial())
		mapping_note(registers->di);
}

static __always_inline void mprotect_ends(long result)
{
	struct pt_regs *registers = syscall_registers();
	__u64 size = page_up(registers->si);
	__u32 serial = process_serial(), found;

	if (!serial)
		return;
	if (!(registers->dx & PROT_ACCESS)) {
		if (settings.mappings && !result && size)
			mapping_send(serial, MAPPING_RESERVE, registers->di, size, 0);
		return;
	}
	found = mapping_call_take().found;
	if (result || !size)
		return;
	if (!found)
		mapping_unknown(size);
	if (!(found & FOUND_ANONYMOUS) || !(found & FOUND_INACCESSIBLE))
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
