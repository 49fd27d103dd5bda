/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which processes are in the scope, from their beginning to their end.
 *
 * A serial stands for one address space: it is given when a process comes into the scope and at
 * every exec. Until it executes, a child that shares its parent's memory (vfork, posix_spawn) has
 * its parent's serial, as its blocks are the parent's.
 */
#ifndef HEAPTAP_PROCESS_BPF_H
#define HEAPTAP_PROCESS_BPF_H

#include "fork.bpf.h"
#include "maps.bpf.h"
#include "sites.bpf.h"

#define CGROUP_MAX_DEPTH 16

/* The serial of the current process, or 0 if it is not counted. */
static __always_inline __u32 process_serial(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct process_record *process = bpf_map_lookup_elem(&processes, &tgid);

	return epochs.active && process && !process->held ? process->serial : 0;
}

/* Whether a cgroup is the scope's, or below it. */
static __always_inline bool cgroup_is_below(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *parent;
	int i;

	for (i = 0; i < CGROUP_MAX_DEPTH && cgroup; i++) {
		if (BPF_CORE_READ(cgroup, kn, id) == settings.cgroup_id)
			return true;
		parent = BPF_CORE_READ(cgroup, self.parent);
		cgroup = parent ? BPF_CORE_READ(parent, cgroup) : NULL;
	}
	return false;
}

/* In the hierarchy that the loader has chosen. */
static __always_inline struct cgroup *task_cgroup(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *state = NULL;

	if (settings.cgroup_subsys < 0)
		return BPF_CORE_READ(set, dfl_cgrp);
	bpf_probe_read_kernel(&state, sizeof(state),
			      (char *)set + bpf_core_field_offset(struct css_set, subsys) +
				      (settings.cgroup_subsys & 31) * sizeof(state));
	return state ? BPF_CORE_READ(state, cgroup) : NULL;
}

/* Whether a process is in the scope by what it is, not by its parent. */
static __always_inline bool scope_has(struct task_struct *task)
{
	if (settings.scope == SCOPE_ALL)
		return BPF_CORE_READ(task, tgid) != (int)settings.own_tgid;
	return settings.scope == SCOPE_CGROUP && cgroup_is_below(task_cgroup(task));
}

static __always_inline __u32 inner_tgid(struct task_struct *leader)
{
	struct pid *pid = BPF_CORE_READ(leader, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level), number = 0;

	bpf_probe_read_kernel(&number, sizeof(number),
			      (char *)pid + bpf_core_field_offset(struct pid, numbers) +
				      level * bpf_core_type_size(struct upid) +
				      bpf_core_field_offset(struct upid, nr));
	return number;
}

/*
 * Gives a process a new serial, which is returned; 0, counted, if there is no room. parent: the
 * serial that it was forked from, or 0.
 */
static __always_inline __u32 process_number(struct task_struct *task, __u32 parent_tgid,
					    __u32 parent, __u32 executed)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	__u32 serial = __sync_fetch_and_add(&last_serial, 1) + 1;
	struct process_info info = {
		.tgid = BPF_CORE_READ(task, tgid),
		.parent_tgid = parent_tgid,
		.executed = executed,
		.start_ns = bpf_ktime_get_ns(),
		.parent = parent,
		.fork_epoch = epochs.current,
		.fork = fork_begin(parent),
	};

	info.inner_tgid = inner_tgid(leader);
	info.cgroup_id = BPF_CORE_READ(task_cgroup(task), kn, id);
	BPF_CORE_READ_STR_INTO(&info.comm, leader, comm);
	if (bpf_map_update_elem(&process_infos, &serial, &info, BPF_NOEXIST)) {
		loss_add(LOSS_PROCESS_FULL, 0);
		if (info.fork)
			fork_leave(parent);
		return 0;
	}
	event_send(EVENT_PROCESS);
	return serial;
}

/* Takes a process in. */
static __always_inline void process_enter(struct task_struct *task, __u32 parent_tgid, __u32 parent,
					  __u32 executed)
{
	__u32 tgid = BPF_CORE_READ(task, tgid);
	struct process_record record = {};

	record.serial = process_number(task, parent_tgid, parent, executed);
	if (!record.serial)
		return;
	if (bpf_map_update_elem(&processes, &tgid, &record, BPF_NOEXIST)) {
		/* Another thread may have been faster. */
		if (!bpf_map_lookup_elem(&processes, &tgid))
			loss_add(LOSS_PROCESS_FULL, 0);
		fork_end(record.serial);
		bpf_map_delete_elem(&process_infos, &record.serial);
		return;
	}
	__sync_fetch_and_add(&process_count, 1);
}

/* A runtime moves a container's first process into its cgroup after it has come to be. */
static __always_inline void process_move(__u32 serial, struct task_struct *task)
{
	struct process_info *info = bpf_map_lookup_elem(&process_infos, &serial);

	if (!info)
		return;
	info->cgroup_id = BPF_CORE_READ(task_cgroup(task), kn, id);
	event_send(EVENT_PROCESS);
}

/* A serial's address space is gone. */
static __always_inline void process_gone(__u32 serial, enum process_gone how, __u32 last,
					 struct task_struct *task)
{
	struct process_info *info = bpf_map_lookup_elem(&process_infos, &serial);

	if (!info)
		return;
	info->last = last;
	info->gone_ns = bpf_ktime_get_ns();
	/* As it is called at its end. */
	if (how == PROCESS_EXITED) {
		struct task_struct *leader = BPF_CORE_READ(task, group_leader);

		BPF_CORE_READ_STR_INTO(&info->comm, leader, comm);
	}
	__sync_lock_test_and_set(&info->gone, how);
	event_send(EVENT_PROCESS);
}

/* The lock is held for some ten instructions, unless its holder is preempted. */
#define CLOSE_ATTEMPTS 128

/* The scope is empty: closes the epoch; the loader, told of it, does it if the lock stays taken. */
static __always_inline void process_last_left(void)
{
	int i;

	for (i = 0; i < CLOSE_ATTEMPTS; i++) {
		if (!__sync_val_compare_and_swap(&epochs.closing, 0, 1)) {
			epoch_close(EPOCH_EXIT);
			return;
		}
	}
	event_send(EVENT_PROCESS);
}

#endif
