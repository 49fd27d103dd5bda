/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The processes of a session, by serial: those that are in the scope and those that were. Of those
 * that have left, the last ones are kept apart; older ones are added up by name.
 */
#ifndef HEAPTAP_PROCESSES_H
#define HEAPTAP_PROCESSES_H

#include <stdbool.h>

#include "cgroup_names.h"
#include "kernel.h"
#include "profile/heap.h"
#include "profile/snapshot.h"

struct processes;

/* container: whose all processes are, or NULL: by their cgroups. Neither is copied. */
int processes_new(struct kernel *kernel, struct cgroup_names *cgroups, const char *container,
		  struct processes **ret);
void processes_free(struct processes *processes);
DEFINE_CLEANUP(processes, struct processes *, processes_free)

/* Forked children get copies of live records. See copies_new() and copies_inherit(). */
int processes_copy_forks(struct processes *processes, bool split);
int processes_inherit(struct processes *processes, struct heap *heap, struct epoch_record *record);

/*
 * Takes note of who came and who left. What the latter leave in the live table is taken out now and
 * then, by processes_purge() at once. Return 0 or a negative errno.
 */
int processes_update(struct processes *processes);
int processes_purge(struct processes *processes);
/* How long to wait with the next update, once there is something to see. */
uint64_t processes_pause_ns(const struct processes *processes);
/* CLOCK_MONOTONIC; 0: there is nothing to take out. */
uint64_t processes_purge_due_ns(const struct processes *processes);

/* Whether so many have left that they should be settled. */
bool processes_are_many(const struct processes *processes);

/* By serial; valid until the next update or settle. */
const struct snapshot_process *processes_list(const struct processes *processes, size_t *ret_count);

/* The one with a serial, and its index in the list; NULL if it is not known. */
const struct snapshot_process *processes_find(const struct processes *processes, uint32_t serial,
					      size_t *ret_index);

/* Of the process at an index of the list. */
struct process_life {
	uint64_t start_ns; /* CLOCK_MONOTONIC: since when it is known under this serial */
	uint64_t gone_ns;  /* 0: it is there */
	bool last;	   /* nobody was left: what it had stays in use */
	bool executed;	   /* it goes on under another serial */
};
struct process_life processes_life(const struct processes *processes, size_t index);

/* Whether it was not taken yet, by the one who looks after those that come. */
bool processes_is_new(const struct processes *processes, size_t index);
void processes_take(struct processes *processes, size_t index);

/* Whether there is one and never was another. */
bool processes_only_one(const struct processes *processes);

/* Whether one was there at a time (CLOCK_MONOTONIC), or came later. */
bool processes_any_since(const struct processes *processes, uint64_t time_ns);

/* Whether one has exited and was not settled. */
bool processes_any_left(const struct processes *processes);

/*
 * At time_ns: what those had in use who had left by then is not in use any more, unless nobody is
 * left. executed_only: who goes on under another serial. Older ones are added up. Returns 0 or
 * -ENOMEM.
 */
int processes_settle(struct processes *processes, struct heap *heap, uint64_t time_ns,
		     bool executed_only);

#endif
