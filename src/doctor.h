/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * `heaptap doctor`: what can be profiled here, how well, and at what cost. Part of the command:
 * these print, on standard output.
 */
#ifndef HEAPTAP_DOCTOR_H
#define HEAPTAP_DOCTOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "probe/attach.h"
#include "process_points.h"
#include "trap_cost.h"

struct doctor {
	struct process_points_options points;
	enum attach_mode mode; /* wanted; after doctor_machine() the one to use */
	/* What doctor_machine() has found out. */
	bool can_probe; /* heaptap's programs load; else neither mode nor cost is known */
	struct trap_cost cost;
};

/* These return whether there is nothing that makes profiling impossible. */
bool doctor_machine(struct doctor *doctor);
bool doctor_process(const struct doctor *doctor, pid_t pid);

/* "  LABEL   MESSAGE" */
void doctor_say(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What makes profiling impossible, and what to do. */
void doctor_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
