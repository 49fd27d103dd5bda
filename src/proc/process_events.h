/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel tells of all processes as it happens: now, which files they map as code. A dummy
 * perf event per CPU, which counts and samples nothing.
 */
#ifndef HEAPTAP_PROC_PROCESS_EVENTS_H
#define HEAPTAP_PROC_PROCESS_EVENTS_H

#include "proc/perf_records.h"
#include "util/cleanup.h"

struct process_events;

/* From here on events are kept. Errors: -EACCES or -EPERM if that is not allowed, -ENOMEM. */
int process_events_open(struct process_events **ret);
void process_events_close(struct process_events *events);
DEFINE_CLEANUP(process_events, struct process_events *, process_events_close)

/* Readable when there are events. */
int process_events_fd(const struct process_events *events);

/*
 * Hands over what has happened since the last call, with times of CLOCK_MONOTONIC; on each CPU in
 * order. lost() must be there, and is called if something did not fit into the rings, or may not
 * have.
 */
void process_events_read(struct process_events *events, const struct perf_handlers *handlers);

#endif
