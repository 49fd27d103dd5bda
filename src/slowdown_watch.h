/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Watches what a recording costs its processes, by the recording's own samples: warns once, or ends
 * the session where the user has set a limit. It takes less than a hundredth of a CPU for itself.
 * Part of the session: prints its errors.
 */
#ifndef HEAPTAP_SLOWDOWN_WATCH_H
#define HEAPTAP_SLOWDOWN_WATCH_H

#include "allocators.h"
#include "kernel.h"
#include "processes.h"
#include "session.h"

struct slowdown_watch;

/* All of it must outlive the watch. */
struct slowdown_watch_context {
	const struct kernel *kernel;
	const struct processes *processes;
	const struct allocators *allocators;
	const struct target *target;
	const struct session_options *options;
	enum attach_mode mode;
};

/* Begins. Returns 0 or a negative errno, and prints nothing. */
int slowdown_watch_new(const struct slowdown_watch_context *context, struct slowdown_watch **ret);
void slowdown_watch_free(struct slowdown_watch *watch);
DEFINE_CLEANUP(slowdown_watch, struct slowdown_watch *, slowdown_watch_free)

/* Readable when it is time for slowdown_watch_look(). */
int slowdown_watch_fd(const struct slowdown_watch *watch);
/* Returns a negative errno if the session is to end as the limit is passed. */
int slowdown_watch_look(struct slowdown_watch *watch);

#endif
