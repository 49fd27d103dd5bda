/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An exception is about to pass return probes. The kernel has replaced the return addresses of the
 * probed calls by its trampoline, where the C++ unwinder can only end the program: they have to be
 * put back first. BPF programs may not write to user memory on a locked-down kernel, so the loader
 * does it, while the program waits.
 */
#ifndef HEAPTAP_THROW_H
#define HEAPTAP_THROW_H

#include "heaptap/types.h"

/* Exceptions that can wait at a time, and return probes that one can pass. */
#define THROW_MAX_REQUESTS 16
#define THROW_MAX_RETURNS  8

enum throw_state {
	THROW_FREE,
	THROW_FILLED_IN, /* by the program, which owns it */
	THROW_WAITS,	 /* for the loader */
	THROW_IN_WORK,	 /* by the loader */
	THROW_DONE,
};

struct throw_request {
	__u32 state; /* enum throw_state */
	__u32 tgid;
	__u32 count;
	__u32 pad;
	/* The program's own, while it fills the request in. */
	__u64 sp;
	__u64 trampoline;
	__u64 instance;
	struct {
		__u64 slot;    /* where on the stack... */
		__u64 address; /* ...this belongs */
	} returns[THROW_MAX_RETURNS];
};

#endif
