/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a trap costs on this machine, measured with probes on heaptap itself. */
#ifndef HEAPTAP_TRAP_COST_H
#define HEAPTAP_TRAP_COST_H

#include <stdbool.h>

#include "probe/attach.h"

/* In ns of the CPU time of the thread that runs into the probe. */
struct trap_cost {
	double emulated; /* on an instruction that the kernel emulates */
	double stepped;	 /* on one that it single-steps */
	double at_return;
	/*
	 * Some kernels from 6.6 to 6.9 take a link's PID for that of a thread: then the mode sees
	 * the first thread only, and all was measured in ATTACH_PERF.
	 */
	bool first_thread_only;
};

/*
 * The speed of a machine with other users changes from moment to moment: what is compared with
 * something else is best timed in rounds while that happens.
 */
struct trap_timer;

/* Probes heaptap and times a first round. Errors: as counter_open() and counter_add(). */
int trap_timer_open(enum attach_mode mode, struct trap_timer **ret);
void trap_timer_close(struct trap_timer *timer);
DEFINE_CLEANUP(trap_timer, struct trap_timer *, trap_timer_close)

/* Takes some milliseconds. At most TRAP_TIMER_ROUNDS count. */
#define TRAP_TIMER_ROUNDS 32
void trap_timer_round(struct trap_timer *timer);
/* Sleeps, with a round now and then. */
void trap_timer_wait(struct trap_timer *timer, unsigned int ms);
/* The medians of the rounds so far. */
struct trap_cost trap_timer_cost(const struct trap_timer *timer);

/* All of it at once, in some 200 ms. */
int trap_cost_measure(enum attach_mode mode, struct trap_cost *ret);

#endif
