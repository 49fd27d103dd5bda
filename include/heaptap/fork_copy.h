/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of live records for forked children (--fork-copy): what the programs keep for the loader
 * from the fork until it has made the copies, and how it hands them over.
 *
 * The fork clock counts forks. A record that was born at clock b and died at clock d lived at the
 * forks b + 1 to d.
 */
#ifndef HEAPTAP_FORK_COPY_H
#define HEAPTAP_FORK_COPY_H

#include "heaptap/site.h"
#include "heaptap/types.h"

/* A record that lived at a fork and has died since; its value is the record. */
struct fork_kept_key {
	__u64 address;
	__u32 serial;
	__u32 died; /* fork clock */
};

/* A child has freed a block, by its live key, before it could have a copy. */
struct fork_free {
	__u32 epoch;
	__u32 died;
};

/* Either table. What does not fit is a loss. */
#define FORK_TABLE_SIZE 262144

struct fork_entry {
	__u64 address;
	struct live_record record;
	/* Set by the program: the live table, or the child's share of it, is full. */
	__u32 refused;
	__u32 freed; /* the epoch in which the child has freed it already, or 0 */
};

#define FORK_BATCH 512

/* For one run of the program that makes copies. */
struct fork_batch {
	__u32 serial; /* the child's */
	__u32 count;
	__u32 done; /* these were the last ones */
	__u32 pad;
	struct fork_entry entries[FORK_BATCH];
};

_Static_assert(sizeof(struct fork_kept_key) == 16, "fork_kept_key has no padding");

#endif
