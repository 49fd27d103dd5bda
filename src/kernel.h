/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel side as the session sees it: the loaded BPF object, and its maps as plain calls.
 * The only file besides probe/attach.c and unwind/upload.c that knows libbpf.
 */
#ifndef HEAPTAP_KERNEL_H
#define HEAPTAP_KERNEL_H

#include <stdbool.h>
#include <sys/types.h>

#include "heaptap/account.h"
#include "heaptap/epoch.h"
#include "heaptap/losses.h"
#include "heaptap/mapping.h"
#include "heaptap/probe.h"
#include "heaptap/process.h"
#include "heaptap/sampler.h"
#include "heaptap/settings.h"
#include "heaptap/site.h"
#include "heaptap/stack.h"
#include "kernel_copies.h"
#include "kernel_faults.h"
#include "probe/attach.h"
#include "profile/threads.h"
#include "unwind/upload.h"
#include "util/cleanup.h"

struct kernel;

/* Which processes come into the scope by themselves. */
struct kernel_scope {
	enum scope_kind kind;
	bool follow;	   /* children of those that are in it */
	int cgroup_subsys; /* of the hierarchy: see kernel_cgroup_subsys(); -1: v2 */
	__u64 cgroup_id;   /* of the directory of SCOPE_CGROUP in kernfs */
};

struct kernel_options {
	__u64 sample_bytes;   /* 1: exact */
	__u64 alloc_interval; /* bytes; 0: off */
	__u64 free_interval;
	__u64 inuse_interval;
	__u32 max_live;
	__u32 max_live_each; /* of one process, or 0: all */
	__u32 max_stacks;    /* chunks of stacks */
	__u32 max_processes;
	bool fork_copy; /* forked children get copies of live records */
	struct kernel_scope scope;
	enum attach_mode mode;
	enum record_mode record;
	bool probes;	    /* allocation functions, and what frees blocks, are probed */
	bool frees_unknown; /* MODE_SAMPLER: frees are not seen of all that is sampled */
	enum mappings_mode mappings;
	bool label_threads;
	bool verbose; /* let libbpf explain failures */
};

/* The number of a v1 hierarchy's controller in this kernel, or -ENOENT. */
int kernel_cgroup_subsys(const char *controller);

/*
 * Loads the programs for an attach mode. Errors: -EPERM without the capabilities, -ENOENT without
 * kernel BTF, -EOPNOTSUPP if this kernel refuses the programs, -ENOMEM.
 */
int kernel_open(const struct kernel_options *options, struct kernel **ret);
void kernel_close(struct kernel *kernel);
DEFINE_CLEANUP(kernel, struct kernel *, kernel_close)

/* The programs' descriptors, for attach. */
const struct attach_programs *kernel_programs(const struct kernel *kernel);
/* The descriptors of the unwind maps, for upload. */
struct upload_maps kernel_upload_maps(const struct kernel *kernel);
/* What copies for forked children are made of, for kernel_copies. */
struct copy_maps kernel_copy_maps(const struct kernel *kernel);
/* Of MODE_FAULTS, for kernel_faults. */
struct fault_parts kernel_fault_parts(const struct kernel *kernel);
/*
 * Learns the image ids that the kernel side gives to files, before any target has mapped them.
 * ids[i] is 0 for a file that cannot be mapped, or if the image table is full.
 */
int kernel_identify(struct kernel *kernel, const int *fds, size_t count, __u32 *ids);
/* An image's UNWIND_* flags as they are now. */
__u32 kernel_image_flags(const struct kernel *kernel, __u32 image);
/* The walker is to ask again for an image that has no table. */
void kernel_ask_again(struct kernel *kernel, __u32 image);
/* Attaches the exec and exit tracepoints. */
int kernel_attach_lifecycle(struct kernel *kernel);
/*
 * An allocation that returns there is part of another one: behind a call within a probed image (its
 * number), or behind a call into another image (the caller's image id). Errors: -E2BIG.
 */
int kernel_add_nested_call(struct kernel *kernel, __u32 image, __u32 return_offset);
int kernel_add_foreign_call(struct kernel *kernel, __u32 image_id, __u32 return_offset);

/*
 * Takes a process into the scope, unless it is in there. held: until its next exec nothing is
 * counted. Errors: -E2BIG if the table is full.
 */
int kernel_add_process(struct kernel *kernel, pid_t pid, const char *comm, __u64 cgroup_id,
		       bool held);
bool kernel_has_process(const struct kernel *kernel, pid_t pid);
/* Takes out one that was gone before its exit could be seen. -ESRCH if it was not in there. */
int kernel_drop_process(struct kernel *kernel, pid_t pid);
/* Processes in the scope now. */
size_t kernel_process_count(const struct kernel *kernel);
/* Children of processes in the scope that were not followed. */
size_t kernel_child_count(const struct kernel *kernel);
/* From here on, the links of that generation count, see attach_replace(). */
void kernel_set_generation(struct kernel *kernel, unsigned int generation);
/* Sums over all CPUs since the beginning. */
int kernel_read_calls(const struct kernel *kernel, struct call_counts *ret);
/* Calls seen() for every serial that is known, in no order. It may forget that serial. */
int kernel_read_processes(const struct kernel *kernel,
			  int (*seen)(void *arg, __u32 serial, const struct process_info *info),
			  void *arg);
void kernel_forget_process(struct kernel *kernel, __u32 serial);
/* Takes the live records of serials that are gone out of the table. */
int kernel_purge(struct kernel *kernel, bool (*gone)(void *arg, __u32 serial), void *arg);

/*
 * Where an allocator samples by itself, and what is to be read there, by index (below
 * SAMPLER_POINTS_MAX); before its probe is placed.
 */
int kernel_set_sampler_point(struct kernel *kernel, __u32 index, const struct sampler_point *point);
/* Samples taken so far by allocators themselves, by how they were taken. */
void kernel_read_estimates(struct kernel *kernel, uint64_t ret[ESTIMATE_COUNT]);

/* From here on allocations are counted, or not. */
void kernel_set_active(struct kernel *kernel, bool active);

/* Readable when the kernel side has sent an event. */
int kernel_event_fd(const struct kernel *kernel);
/*
 * Takes the events that wait. Bit `type` of *ret_types is set for each type there was (enum
 * event_type). Returns 0 or a negative errno.
 */
int kernel_consume_events(struct kernel *kernel, __u32 *ret_types);

/* For throws.c, in its thread: the requests, and the same for the events that announce them. */
struct throw_request *kernel_throws(struct kernel *kernel);
int kernel_throw_fd(const struct kernel *kernel);
int kernel_consume_throws(struct kernel *kernel);

/*
 * Attaches the programs that count mappings or growth; nothing if the mode needs none. Errors:
 * those of the system calls.
 */
int kernel_attach_mappings(struct kernel *kernel);
/* Readable when many events wait; -1 if no account of mappings is kept. */
int kernel_mapping_fd(const struct kernel *kernel);
/* Hands all events that wait to seen(), in order. Returns its first error. */
int kernel_consume_mappings(struct kernel *kernel,
			    int (*seen)(void *arg, const struct mapping_event *event), void *arg);

/*
 * Closes the open epoch. If too many closed ones wait to be drained, one of a trigger is merged
 * with the next, and for others -EAGAIN is returned.
 */
int kernel_close_epoch(struct kernel *kernel, enum epoch_reason reason);
/* Counts a snapshot that is not made, as the next one has what it would have: epoch_late. */
void kernel_note_merged(struct kernel *kernel);
/* Closed epochs that are not drained. */
size_t kernel_closed_epochs(const struct kernel *kernel);
/*
 * The oldest closed epoch that is not drained. Waits until no program can still add to it.
 * Returns false if there is none.
 */
bool kernel_next_epoch(struct kernel *kernel, struct epoch_record *ret);
/* Totals as they are now, weights. */
struct epoch_totals kernel_totals(const struct kernel *kernel);

/* The table of sites fills up. */
bool kernel_sites_are_many(const struct kernel *kernel);
/*
 * Hands the sites of a closed epoch to add(), takes them out of the map and marks the epoch as
 * drained. add() may fail with a negative errno, which is returned; the epoch then stays.
 */
int kernel_drain(struct kernel *kernel, __u32 epoch,
		 int (*add)(void *arg, const struct site_key *key,
			    const struct site_counters *counters),
		 void *arg);

/*
 * The names of threads that the sites drained so far have; NULL unless threads are labelled. A
 * drain adds to it.
 */
const struct threads *kernel_threads(const struct kernel *kernel);

/* Errors: -ENOENT. */
int kernel_read_chunk(struct kernel *kernel, __u64 id, struct stack_chunk *ret);
/* Deletes the chunks of a stack that has raw addresses, and whose process is gone. */
void kernel_forget_stack(struct kernel *kernel, __u64 id);
/* Calls seen() for every image the programs have met. */
int kernel_read_images(struct kernel *kernel,
		       int (*seen)(void *arg, const struct image_sight *sight), void *arg);
/* Counts a loss that the loader has seen itself. */
void kernel_note_loss(struct kernel *kernel, enum loss loss, __u64 count);
/* Sums over all CPUs, and what was noted. */
int kernel_read_losses(struct kernel *kernel, struct loss_counter ret[LOSS_COUNT]);

#endif
