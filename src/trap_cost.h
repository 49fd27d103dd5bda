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

/* Takes some 100 ms. Errors: as counter_open() and counter_add(). */
int trap_cost_measure(enum attach_mode mode, struct trap_cost *ret);

#endif
