/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The CPU time of a set of processes that come and go, all together. What a process has taken that
 * came and went between two looks is in the time of its parent, which waited for it.
 */
#ifndef HEAPTAP_CPU_TIMES_H
#define HEAPTAP_CPU_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "profile/snapshot.h"
#include "util/cleanup.h"

struct cpu_times;

int cpu_times_new(struct cpu_times **ret);
void cpu_times_free(struct cpu_times *times);
DEFINE_CLEANUP(cpu_times, struct cpu_times *, cpu_times_free)

/* Looks at those that have not left, some 20 microseconds each. Errors: -ENOMEM. */
int cpu_times_update(struct cpu_times *times, const struct snapshot_process *processes,
		     size_t count);
/* Taken from the first update to the last, to a clock tick for each process. */
uint64_t cpu_times_ns(const struct cpu_times *times);

#endif
