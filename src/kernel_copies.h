/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The maps that copies for forked children are made of. Part of kernel.c; copies.c uses it. */
#ifndef HEAPTAP_KERNEL_COPIES_H
#define HEAPTAP_KERNEL_COPIES_H

#include <stdbool.h>

#include "heaptap/fork_copy.h"
#include "heaptap/process.h"

struct copy_maps {
	int live;
	int kept;
	int frees;
	int processes;
	int program;
	__u32 *live_filter;
	struct fork_batch *batch;
	volatile __u32 *clock;
	volatile __u32 *due;
	volatile __u32 *epoch;
};

/* Children whose copies are due, also those that are not known by a serial yet. */
__u32 kernel_copies_due(const struct copy_maps *maps);

/* Returns false if the serial is not known (any more). */
bool kernel_copies_process(const struct copy_maps *maps, __u32 serial, struct process_info *ret);

/* Calls seen() for every live record; then for what was kept of those that have died. */
int kernel_copies_live(const struct copy_maps *maps,
		       int (*seen)(void *arg, const void *key, const void *value), void *arg);
int kernel_copies_kept(const struct copy_maps *maps,
		       int (*seen)(void *arg, const void *key, const void *value), void *arg);

/*
 * Has the program make the copies of maps->batch, and end the child's copies if `done` is set.
 * Errors: those of the system call.
 */
int kernel_copies_make(const struct copy_maps *maps);

/* Deletes what was kept of records for which kept() does not say that it is needed. */
int kernel_copies_clean_kept(const struct copy_maps *maps,
			     bool (*needed)(void *arg, const struct fork_kept_key *key,
					    const struct live_record *record),
			     void *arg);
/* Deletes the notes about what a child has freed unless its copies are due. */
int kernel_copies_clean_frees(const struct copy_maps *maps);

#endif
