/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose JIT code is looked at anew for a snapshot. That takes some system calls for each process,
 * so of many they have their turns, and first come those whose code is in stacks.
 */
#ifndef HEAPTAP_REFRESH_H
#define HEAPTAP_REFRESH_H

#include "profile/snapshot.h"

#define REFRESH_MAX 64

/* In the order in which they are looked at. */
enum refresh_rank {
	REFRESH_RUNNING, /* has raw frames */
	REFRESH_LEFT,	 /* likewise, but has ended: what it has written last may not be known */
	/* Runs, and may have some by the time it has ended. Always the first ones: of each that has
	 * been looked at some files stay open. */
	REFRESH_SILENT,
	REFRESH_RANKS
};

/* All zero at first: the serials whose turn was last. */
struct refresh {
	uint32_t last[REFRESH_SILENT];
};

/* Returns the number of processes in pids. -ENOMEM. */
int refresh_choose(struct refresh *refresh, const struct snapshot_input *input,
		   pid_t pids[REFRESH_MAX]);

#endif
