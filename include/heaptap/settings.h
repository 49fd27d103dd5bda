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
	__u8 exact;   /* every allocation is picked, with weight 1 */
	__u8 session; /* one program runs at entry and return (uprobe_multi session) */
	__u8 pad[6];
};

enum event_type {
	EVENT_EPOCH_CLOSED = 1, /* see struct epoch_state */
	EVENT_IMAGE_SEEN,	/* see struct image_sight, in the images map */
};

/* An event only wakes the loader: what it tells also stands in a map. */
struct event {
	__u32 type;
	__u32 value; /* the epoch; the image id */
};

/* A process in the scope, by its id in the initial PID namespace. */
struct process_record {
	__u32 serial; /* changes at exec, so that records of the old address space are never met */
	__u32 held;   /* our own child that has not executed its command yet: nothing is counted */
};

#endif
