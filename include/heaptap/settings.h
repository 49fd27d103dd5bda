/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is fixed before the BPF programs are loaded, and the events they send. */
#ifndef HEAPTAP_SETTINGS_H
#define HEAPTAP_SETTINGS_H

#include "heaptap/types.h"

/* Read-only for the programs. Intervals are weights (WEIGHT_BYTES_SHIFT); 0 turns one off. */
struct settings {
	__u64 alloc_interval;
	__u64 free_interval;
	__u64 inuse_interval;
	__u8 exact;	    /* every allocation is picked, with weight 1 */
	__u8 session;	    /* one program runs at entry and return (uprobe_multi session) */
	__u8 scope;	    /* enum scope_kind */
	__u8 follow;	    /* children of processes in the scope come into it */
	__s8 cgroup_subsys; /* a v1 hierarchy's, or -1 for the v2 hierarchy */
	__u8 label_threads; /* sites and live records carry the name of their thread */
	__u8 fork_copy;	    /* forked children get copies of live records */
	__u8 mappings;	    /* enum mappings_mode */
	__u8 frees_unknown; /* MODE_SAMPLER: what is in use cannot be known, only what is allocated
			     */
	__u8 pad[3];
	__u32 own_tgid;	     /* the loader's, which is in no scope */
	__u32 max_live_each; /* live records that one of several processes may have */
	__u64 cgroup_id;     /* of the directory in kernfs */
};

/*
 * Calls that trapped, by the samples among them: how many picked ones stand for how many. Frees are
 * not counted; they are about as many.
 */
struct call_counts {
	__u64 inside; /* the scope; weights as in struct weight's objects */
	__u64 outside;
	__u64 picked_inside;
	__u64 picked_outside;
};

enum event_type {
	EVENT_EPOCH_CLOSED = 1, /* see struct epoch_state */
	EVENT_IMAGE_SEEN,	/* see struct image_sight, in the images map */
	EVENT_PROCESS,		/* one came or went, see struct process_info */
	EVENT_SITES,		/* the site table has SITES_MANY entries */
};

/* An event only wakes the loader: what it tells of stands in a map. */
struct event {
	__u32 type;
};

#endif
