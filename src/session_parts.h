/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The parts of a session, in the order in which they are made: see session.c. */
#ifndef HEAPTAP_SESSION_PARTS_H
#define HEAPTAP_SESSION_PARTS_H

#include "probe/attach.h"
#include "kernel_faults.h"
#include "loop.h"
#include "session.h"

struct session {
	struct session_options *options;
	struct session_options chosen; /* what options point to */
	struct kernel *kernel;
	struct target *target;
	struct attach *attach;
	struct kernel_faults *faults; /* of MODE_FAULTS, else NULL */
	struct throws *throws;
	struct allocators *allocators;
	struct arrivals *arrivals; /* NULL if the kernel does not tell of them */
	struct images *images;
	struct symbolizer *symbolizer;
	struct tables *tables;
	struct runtimes *runtimes;
	struct sights *sights;
	struct processes *processes;
	struct scope_links *links;
	struct mappings *mappings; /* or NULL */
	struct heap *heap;
	struct snapshots *snapshots;
	struct writer *writer;
	struct slowdown_watch *slowdown;
	char scope[256];
	int root_fd; /* of a running target, or -1 */
	struct loop loop;
	enum attach_mode mode;
	uint64_t start_ns; /* CLOCK_MONOTONIC, as below */
	uint64_t last_dump_ns;
	uint64_t processes_due_ns; /* when they are to be looked at, or 0 */
	bool done;
};

/*
 * Searches and probes what is to be profiled; nothing is counted yet. Errors are logged;
 * session_close() is due after each.
 */
int session_open(struct session *session);
void session_close(struct session *session);

#endif
