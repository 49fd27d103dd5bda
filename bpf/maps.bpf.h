/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every map and global of the kernel side, with the reason for its size. */
#ifndef HEAPTAP_MAPS_BPF_H
#define HEAPTAP_MAPS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "heaptap/epoch.h"
#include "heaptap/fork_copy.h"
#include "heaptap/losses.h"
#include "heaptap/probe.h"
#include "heaptap/sampler.h"
#include "heaptap/settings.h"
#include "heaptap/site.h"
#include "heaptap/stack.h"
#include "heaptap/process.h"
#include "heaptap/thread.h"
#include "heaptap/throw.h"
#include "heaptap/weight.h"

const volatile struct settings settings = {};
const volatile struct sampling_tables sampling = {};

/* Shared with the loader through its mapping of .bss. */
volatile struct epoch_state epochs = {};
__u32 live_filter[LIVE_FILTER_SIZE] = {};
__u32 image_count = 0;
volatile __u32 last_serial = 0;
/* Processes in the scope. */
volatile __u32 process_count = 0;
/* Children that were not followed. */
volatile __u32 child_count = 0;
/*
 * Probe points with another generation are not to count: while the loader replaces all links by
 * others, each call is counted by one of both.
 */
volatile __u32 generation = 0;
/* Counts the forks after which a child gets copies of live records. */
volatile __u32 fork_clock = 0;
/* Children whose copies are due. */
volatile __u32 copies_due = 0;
/* The loader fills it and runs fork_copy(). */
struct fork_batch fork_batch = {};
/* Entries of `sites`. */
__u32 site_count = 0;
/* Samples that allocators have drawn themselves, by enum sampler_estimate. */
__u64 estimate_counts[ESTIMATE_COUNT] = {};
/* What keys there are in nested_calls: NESTED_*. */
volatile __u32 nested_kinds = 0;
/* Numbers given to names of threads. */
volatile __u32 thread_count = 0;

/* identify_image() looks at the mappings in this range of this process, the loader itself. */
volatile __u64 identify_start = 0;
volatile __u64 identify_end = 0;
volatile __u32 identify_tgid = 0;

/* The bytes left until the next sample, per CPU. */
struct sampler_state {
	__u64 bytes_left;
	__u64 ready; /* bytes_left has been drawn once */
};

/*
 * From 6.13 on, functions of a program that take 64 bytes of stack or more get stacks per CPU, on
 * the assumption that the program cannot be preempted by itself. Uprobe programs can. A program
 * with a tail call anywhere keeps the kernel's stack; this one is never made.
 */
const volatile bool never = false;

struct no_programs {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

/* A program array takes programs of one attach type. */
struct no_programs no_programs SEC(".maps");
struct no_programs no_sessions SEC(".maps");

#define NO_PRIVATE_STACK(ctx, programs)                                                            \
	do {                                                                                       \
		if (never)                                                                         \
			bpf_tail_call(ctx, &programs, 0);                                          \
	} while (0)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sampler_state);
} sampler SEC(".maps");

/* Between a call and its return, for picked allocations and for realloc of a live sample. */
#define PENDING_MAX 4

struct pending {
	__u64 sp; /* at entry: where the return address lies */
	__u64 size;
	__u64 out; /* posix_memalign's result pointer */
	__u64 old_address;
	struct weight weight; /* of the new block, if picked */
	struct live_record old;
	__u32 picked;
	__u32 in_place; /* returns a size, see PROBE_RESIZE */
	__u32 has_old;	/* `old` was taken out of the live table and waits for the outcome */
	__u32 point;	/* of an allocator's own sample: its index, see heaptap/sampler.h */
};

struct pending_calls {
	__u32 count;
	__u32 has_told;			   /* the extent of what jemalloc has sampled follows */
	struct pending calls[PENDING_MAX]; /* outermost first */
	struct weight told;    /* of a sample that a program tells of, see marked_alloc() */
	struct pending extent; /* `old` is what leaves jemalloc's extent at old_address */
	__u64 allocated;       /* what tcmalloc takes from its countdown for the block in work */
};

/* Task storage goes away with its thread: a thread killed inside malloc leaves nothing behind. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pending_calls);
} pending SEC(".maps");

/* The loader sets max_entries: how many live samples it wants to pay for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct live_key);
	__type(value, struct live_record);
} live SEC(".maps");

/* Sites of the open epoch and of the closed ones that the loader has not drained yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SITES_MAX);
	__type(key, struct site_key);
	__type(value, struct site_counters);
} sites SEC(".maps");

/* About 21 MB. Stacks share the chunks of their roots: enough for some 100,000 typical stacks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct stack_chunk);
} chunks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct image_key);
	__type(value, struct image_sight);
} images SEC(".maps");

/* By tgid. The loader sets max_entries, here and below. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct process_record);
} processes SEC(".maps");

/* By serial. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct process_info);
} process_infos SEC(".maps");

/*
 * What died since a fork whose copies are due. Each entry counts in the live filter: the child may
 * free its block before it has the copy. The loader sets max_entries, here and below, if it makes
 * copies at all.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct fork_kept_key);
	__type(value, struct live_record);
} fork_kept SEC(".maps");

/* What children have freed whose copies are due. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct live_key);
	__type(value, struct fork_free);
} fork_frees SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROBE_MAX_NESTED_CALLS);
	__type(key, __u64);
	__type(value, __u8);
} nested_calls SEC(".maps");

/* Filled before the probes are placed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLER_POINTS_MAX);
	__type(key, __u32);
	__type(value, struct sampler_point);
} sampler_points SEC(".maps");

/* The loader sets max_entries: THREAD_NAMES_MAX, 360 KB, if threads are labelled. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct thread_name);
	__type(value, __u32);
} thread_names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_counts);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNT);
	__type(key, __u32);
	__type(value, struct loss_counter);
} losses SEC(".maps");

/* Events are wake-ups, of 16 bytes with their header; what they tell stands elsewhere. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

/* A lost event is a loss only in time, but it is counted all the same. */
static __always_inline void loss_add_count(enum loss loss, __u64 count, __u64 bytes)
{
	__u32 key = loss;
	struct loss_counter *counter = bpf_map_lookup_elem(&losses, &key);

	if (!counter)
		return;
	__sync_fetch_and_add(&counter->count, count);
	__sync_fetch_and_add(&counter->bytes, bytes);
}

static __always_inline void loss_add(enum loss loss, __u64 bytes)
{
	loss_add_count(loss, 1, bytes);
}

static __always_inline void event_send(enum event_type type)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		loss_add(LOSS_EVENT_FULL, 0);
		return;
	}
	event->type = type;
	bpf_ringbuf_submit(event, 0);
}

#endif
