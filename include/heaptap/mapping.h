/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel side tells of the syscalls that change mappings. Ranges are of whole pages.
 *
 * Of two threads, one may be given the range that the other has just unmapped, before the other is
 * back from its syscall. So what takes a range away is told when the syscall begins, and what adds
 * one when it ends: in this order the range is free before it is given again. A syscall that then
 * fails is undone.
 */
#ifndef HEAPTAP_MAPPING_H
#define HEAPTAP_MAPPING_H

#include "heaptap/types.h"

enum mapping_change {
	MAPPING_ADD = 1,   /* anonymous memory, in place of whatever was there */
	MAPPING_TAKE,	   /* unmapped, or about to be: a syscall of this thread begins */
	MAPPING_TAKE_BACK, /* it has failed */
	MAPPING_MOVE,	   /* mremap() has put what it took there, with another size */
	MAPPING_REMOVE,	   /* something else was mapped there, or it was unmapped */
	MAPPING_RESERVE,   /* address space only: without access, or its memory was given back */
	MAPPING_USE,	   /* has memory again, or may have */
};

struct mapping_event {
	__u64 start;
	__u64 size;
	__u64 stack_id;	 /* of MAPPING_ADD and MAPPING_MOVE */
	__u32 serial;	 /* of the process */
	__u32 thread;	 /* the number of the thread's name, see thread.h */
	__u32 tid;	 /* in the initial PID namespace */
	__u32 change;	 /* enum mapping_change */
	__u32 anonymous; /* MAPPING_MOVE: what it took is */
};

/* A MiB is some 20,000 events. */
#define MAPPING_RING_SIZE (4u << 20)

#endif
