/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whom the links reach. Links to everybody see a process from its first instruction on, but every
 * other process that uses the same files pays a trap for each of its calls. Links to single
 * processes cost nobody else anything, but one that starts is reached some milliseconds late.
 *
 * Where processes come into the scope by themselves, everybody is reached at first; the others are
 * left alone once they make more calls than the scope does.
 */
#ifndef HEAPTAP_SCOPE_LINKS_H
#define HEAPTAP_SCOPE_LINKS_H

#include "processes.h"

/* Links to more single processes than that would be slower than what they save. */
#define SCOPE_LINKS_MAX 64

struct scope_links;

enum scope_reach {
	REACH_ALL,	/* for good */
	REACH_EACH,	/* the processes of the scope, for good */
	REACH_BY_CALLS, /* everybody at first */
};

struct scope_links_context {
	struct kernel *kernel;
	struct attach *attach;
	struct processes *processes;
	enum scope_reach reach;
	const pid_t *pids; /* that are reached already, of REACH_EACH; copied */
	size_t pid_count;  /* at most max */
	size_t max;	   /* scope_links_max() */
};

/* How many single processes may be reached by that mode. */
size_t scope_links_max(enum attach_mode mode);

/* Processes that were reached late, or not at all. */
struct scope_links_late {
	size_t count;
	size_t ended;	     /* of them, before they were reached */
	uint64_t longest_ns; /* from its start until it was reached, or ended */
	size_t refused;	     /* beside them: they run, and there is no room to reach them */
};

int scope_links_new(const struct scope_links_context *context, struct scope_links **ret);
void scope_links_free(struct scope_links *links);
DEFINE_CLEANUP(scope_links, struct scope_links *, scope_links_free)

/* After processes_update(): reaches those that came. Returns 0 or -ENOMEM. */
int scope_links_update(struct scope_links *links);
/* Whether there are more to reach than the last update had time for. */
bool scope_links_are_behind(const struct scope_links *links);

/* Looks at who makes the calls, if it is time for that. Prints what it changes. */
int scope_links_judge(struct scope_links *links, uint64_t now_ns);
/* When it is; UINT64_MAX for never. */
uint64_t scope_links_due_ns(const struct scope_links *links);

/* Whether a process that starts now is reached late. */
bool scope_links_are_late(const struct scope_links *links);
struct scope_links_late scope_links_late(const struct scope_links *links);

/*
 * Pure. Whether others make more calls than the scope, by what was counted in a time. False also if
 * that is too little to tell, or to matter.
 */
bool scope_links_outnumbered(const struct call_counts *counts, uint64_t duration_ns);

#endif
