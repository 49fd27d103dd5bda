/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts the calls that pass probe points of a process, in all its threads, and nothing else: a
 * BPF program of its own beside, or instead of, those of a recording.
 */
#ifndef HEAPTAP_SRC_COUNTER_H
#define HEAPTAP_SRC_COUNTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "heaptap/counter.h"
#include "probe/attach.h"
#include "util/cleanup.h"

struct counter;

/*
 * Loads the program; nothing is probed yet. sample_bytes: the distance for
 * counter_value.sampled_bytes. Errors: -EPERM without the capabilities, or what the kernel says.
 */
int counter_open(enum attach_mode mode, pid_t pid, uint64_t sample_bytes, struct counter **ret);
/* Removes the probes, which takes the kernel some 10 ms, in mode perf for each. */
void counter_close(struct counter *counter);
DEFINE_CLEANUP(counter, struct counter *, counter_close)

/*
 * Counts at the points of one file. They get the next free indexes, in their order. Errors: -E2BIG
 * past COUNTER_MAX_POINTS, or what the kernel says: -ESRCH if the process is gone.
 */
int counter_add(struct counter *counter, int fd, const struct module_points *points);
/* The same for one place in a file: a function's first instruction, or its return. */
int counter_add_place(struct counter *counter, int fd, uint64_t offset, bool at_return);

/* From here on calls are counted. */
void counter_start(struct counter *counter);
/* What was counted so far at a point. */
int counter_read(const struct counter *counter, uint32_t index, struct counter_value *ret);

#endif
