/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The processes of a scope, as the BPF programs and the loader know them. */
#ifndef HEAPTAP_PROCESS_H
#define HEAPTAP_PROCESS_H

#include "heaptap/types.h"

enum scope_kind {
	SCOPE_PROCESSES, /* those that the loader names */
	SCOPE_CGROUP,	 /* also those that come to be below a cgroup */
	SCOPE_ALL,	 /* every process but the loader */
};

/* A process in the scope, by its id in the initial PID namespace. */
struct process_record {
	__u32 serial; /* changes at exec, so that records of the old address space are never met */
	__u32 held;   /* our own child that has not executed its command yet: nothing is counted */
	__u32 shared; /* its memory is its parent's until it executes, and so is the serial */
	__u32 pad;
};

#define PROCESS_COMM_SIZE 16

enum process_gone {
	PROCESS_EXITED = 1,
	PROCESS_EXECUTED, /* another program: it goes on under another serial */
};

/*
 * What is known of a serial: an address space of a process. It stays until the loader takes it out,
 * after the process has left it by exec or exit.
 */
struct process_info {
	__u32 tgid;
	__u32 parent_tgid; /* 0 if it was there before */
	__u32 inner_tgid;  /* in its innermost PID namespace */
	__u32 gone;	   /* enum process_gone */
	__u64 start_ns;	   /* CLOCK_MONOTONIC: since when it is known */
	__u64 gone_ns;
	__u64 live;	/* records in the live table */
	__u32 last;	/* it was the last process of the scope */
	__u32 executed; /* it began at an exec, and so from its first instruction */
	__u32 parent;	/* the serial that copies come from, if a fork began it */
	__u32 fork;	/* its fork by the fork clock while its copies are due, else 0 */
	__u32 fork_epoch;
	__u32 copies; /* children whose copies of its records are due */
	char comm[PROCESS_COMM_SIZE];
	__u64 cgroup_id; /* in kernfs, of the hierarchy that settings name; 0 if it is not known
			  */
};

_Static_assert(sizeof(struct process_info) == 88, "process_info has no padding");

#endif
