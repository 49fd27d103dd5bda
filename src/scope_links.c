/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "scope_links.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

/* A burst of others changes nothing. */
#define WINDOW_NS     3000000000ull
#define WINDOW_MAX_NS 60000000000ull /* as long as there are few samples */

/* With fewer samples the ratio is off by a third and more. */
#define SAMPLES_MIN 32

/* Calls per second of others that are no matter: a percent or two of a CPU. */
#define CALLS_MIN 10000

/* Calls that have entered by the old links return in that time, but for a few. */
#define SETTLE_US 20000

/* An event for each probe of each process: it takes some 50 ms to place or remove one. */
#define MAX_BY_EVENTS 8

/* Signals and timers wait no longer than that, and for one more process to be reached. */
#define UPDATE_NS 100000000ull

/* So much time is no matter, beyond it no more than a quarter goes to reaching processes. */
#define SPENT_MIN_NS 1000000000ull

struct scope_links {
	struct scope_links_context context;
	bool each;
	pid_t *pids; /* that are reached, if each is */
	size_t count;
	struct scope_links_late late;
	struct call_counts counts; /* at the beginning of the window */
	uint64_t begin_ns;
	uint64_t due_ns;
	uint64_t each_ns;  /* since when each is reached */
	uint64_t spent_ns; /* of that time, on reaching those that came */
	size_t failures;   /* processes that could not be linked, but for want of room */
	bool behind;
	bool failed; /* to link single processes */
	bool warned;
};

size_t scope_links_max(enum attach_mode mode)
{
	return mode == ATTACH_PERF ? MAX_BY_EVENTS : SCOPE_LINKS_MAX;
}

int scope_links_new(const struct scope_links_context *context, struct scope_links **ret)
{
	struct scope_links *links = calloc(1, sizeof(*links));

	if (!links)
		return -ENOMEM;
	links->context = *context;
	/* Where they must be reached one by one there may be more than the maximum. */
	links->pids = calloc(context->max + context->pid_count, sizeof(*links->pids));
	if (!links->pids) {
		free(links);
		return -ENOMEM;
	}
	links->each = context->reach == REACH_EACH;
	links->begin_ns = links->each_ns = clock_ns(CLOCK_MONOTONIC);
	links->due_ns = links->begin_ns + WINDOW_NS;
	if (links->each)
		memcpy(links->pids, context->pids, context->pid_count * sizeof(*links->pids));
	links->count = links->each ? context->pid_count : 0;
	*ret = links;
	return 0;
}

void scope_links_free(struct scope_links *links)
{
	if (!links)
		return;
	free(links->pids);
	free(links);
}

bool scope_links_are_behind(const struct scope_links *links)
{
	return links->behind;
}

bool scope_links_are_late(const struct scope_links *links)
{
	return links->each;
}

struct scope_links_late scope_links_late(const struct scope_links *links)
{
	return links->late;
}

static bool knows(const struct scope_links *links, pid_t pid)
{
	for (size_t i = 0; i < links->count; i++)
		if (links->pids[i] == pid)
			return true;
	return false;
}

/* ------------------------------------------------------------------ who comes and goes */

static void remove_gone(struct scope_links *links)
{
	for (size_t i = links->count; i-- > 0;) {
		if (kernel_has_process(links->context.kernel, links->pids[i]))
			continue;
		attach_remove(links->context.attach, links->pids[i]);
		links->pids[i] = links->pids[--links->count];
	}
}

static int reach_all(struct scope_links *links)
{
	const pid_t all = 0;
	unsigned int generation;
	int err = attach_replace(links->context.attach, &all, 1, &generation);

	if (err)
		return err;
	kernel_set_generation(links->context.kernel, generation);
	usleep(SETTLE_US);
	attach_settle(links->context.attach);
	links->each = false;
	return 0;
}

/* Whether processes come faster than they can be reached. */
static bool is_too_slow(const struct scope_links *links)
{
	uint64_t since_ns = clock_ns(CLOCK_MONOTONIC) - links->each_ns;

	return links->spent_ns > SPENT_MIN_NS && links->spent_ns > since_ns / 4;
}

/* 0, -ESRCH if it is gone, -E2BIG if so many are reached already, or its links' other errors. */
static int reach_one(struct scope_links *links, pid_t pid)
{
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int err = -ESRCH;

	if (kernel_has_process(links->context.kernel, pid))
		err = links->count < links->context.max ? attach_add(links->context.attach, pid)
							: -E2BIG;
	links->spent_ns += clock_ns(CLOCK_MONOTONIC) - start_ns;
	if (!err) {
		links->pids[links->count++] = pid;
		log_verbose("PID %d is reached", pid);
	}
	return err;
}

/* Where links to everybody are not allowed, as they may kill others. */
static void warn_once(struct scope_links *links, pid_t pid, int err)
{
	char reason[64];

	if (links->warned)
		return;
	links->warned = true;
	if (err == -E2BIG)
		snprintf(reason, sizeof(reason), "until one of %zu others has ended", links->count);
	else
		snprintf(reason, sizeof(reason), "(%s)", strerror(-err));
	log_warning("PID %d is not counted %s: processes are probed one by one here, as probes on "
		    "everybody may kill those that have a seccomp filter on this kernel; --force "
		    "places them nevertheless, and then all are counted",
		    pid, reason);
}

/* Goes back to links to everybody if those to each do not do. */
static int fall_back(struct scope_links *links, pid_t pid, int err)
{
	if (err == -ESRCH || (!err && !is_too_slow(links)))
		return 0;
	if (err)
		log_verbose("PID %d cannot be reached alone (%s): everybody is, from now on", pid,
			    strerror(-err));
	else
		log_info("Processes start faster than they can be reached one by one: other "
			 "processes pay for the probes again");
	links->failed = true;
	return reach_all(links);
}

/* Since when a process runs: under this serial, or under others before it executed. */
static uint64_t begin_of(const struct scope_links *links, size_t index)
{
	size_t count;
	const struct snapshot_process *list = processes_list(links->context.processes, &count);
	struct process_life life = processes_life(links->context.processes, index);
	uint64_t begin_ns = life.start_ns;

	for (size_t i = index; i-- > 0;) {
		if (list[i].pid != list[index].pid)
			continue;
		life = processes_life(links->context.processes, i);
		if (!life.executed)
			break;
		begin_ns = life.start_ns;
	}
	return begin_ns;
}

static void count_late(struct scope_links *links, size_t index, bool gone)
{
	struct process_life life = processes_life(links->context.processes, index);
	uint64_t end_ns = gone && life.gone_ns ? life.gone_ns : clock_ns(CLOCK_MONOTONIC);
	uint64_t late_ns = end_ns - begin_of(links, index);

	links->late.count++;
	links->late.ended += gone;
	if (late_ns > links->late.longest_ns)
		links->late.longest_ns = late_ns;
}

/*
 * Reaches a new process. Returns 1 if it stays new, for the time when others have ended, or a
 * negative errno if links to everybody are wanted then and cannot be made.
 */
static int look_at(struct scope_links *links, size_t index, pid_t pid)
{
	bool each = links->context.reach == REACH_EACH, refused;
	int err;

	if (!pid || knows(links, pid)) {
		processes_take(links->context.processes, index);
		return 0;
	}
	err = reach_one(links, pid);
	refused = err && err != -ESRCH;
	/* Where it goes on under another serial, that one counts for both. */
	if (err && processes_life(links->context.processes, index).executed) {
		processes_take(links->context.processes, index);
		return 0;
	}
	if (each && refused)
		warn_once(links, pid, err);
	if (each && err == -E2BIG)
		return 1;
	processes_take(links->context.processes, index);
	if (each && refused)
		links->failures++;
	else
		count_late(links, index, err == -ESRCH);
	return each ? 0 : fall_back(links, pid, err);
}

/* Those that are reached stay so when they execute another program. */
static void take_reached(struct scope_links *links)
{
	size_t count;
	const struct snapshot_process *list = processes_list(links->context.processes, &count);

	for (size_t i = 0; i < count; i++)
		if (processes_is_new(links->context.processes, i) && knows(links, list[i].pid))
			processes_take(links->context.processes, i);
}

int scope_links_update(struct scope_links *links)
{
	size_t count, waiting = 0;
	const struct snapshot_process *list = processes_list(links->context.processes, &count);
	uint64_t begin_ns = clock_ns(CLOCK_MONOTONIC);

	links->behind = false;
	if (!links->each)
		return 0;
	take_reached(links);
	remove_gone(links);
	links->spent_ns += clock_ns(CLOCK_MONOTONIC) - begin_ns;
	for (size_t i = 0; i < count && links->each && !links->behind; i++) {
		int err = 0;

		if (processes_is_new(links->context.processes, i))
			err = look_at(links, i, list[i].pid);
		if (err < 0)
			return err;
		waiting += err;
		links->behind = clock_ns(CLOCK_MONOTONIC) - begin_ns > UPDATE_NS;
	}
	links->late.refused = links->failures + waiting;
	return 0;
}

/* ------------------------------------------------------------------ who makes the calls */

bool scope_links_outnumbered(const struct call_counts *counts, uint64_t duration_ns)
{
	double outside = ldexp(counts->outside, -WEIGHT_OBJECTS_SHIFT);

	return counts->picked_inside + counts->picked_outside >= SAMPLES_MIN &&
	       counts->outside > counts->inside && outside > CALLS_MIN * (duration_ns / 1e9);
}

/* Processes that are in the scope now; more than max is max + 1. */
static size_t list_running(const struct scope_links *links, pid_t *pids, size_t max)
{
	size_t count, running = 0;
	const struct snapshot_process *list = processes_list(links->context.processes, &count);

	for (size_t i = 0; i < count; i++) {
		if (!list[i].pid || processes_life(links->context.processes, i).gone_ns ||
		    !kernel_has_process(links->context.kernel, list[i].pid))
			continue;
		if (running == max)
			return max + 1;
		pids[running++] = list[i].pid;
	}
	return running;
}

/* From links to everybody to links to each; ratio is 0 if the scope makes no calls. */
static int reach_each(struct scope_links *links, double ratio)
{
	unsigned int generation;
	char times[64] = "calls, unlike";
	size_t count, known;
	int err = processes_update(links->context.processes);

	if (err)
		return err;
	count = list_running(links, links->pids, links->context.max);
	if (!count || count > links->context.max)
		return 0;
	err = attach_replace(links->context.attach, links->pids, count, &generation);
	if (err) {
		log_verbose("The processes of the scope cannot be reached alone (%s)",
			    strerror(-err));
		links->failed = true;
		return 0;
	}
	kernel_set_generation(links->context.kernel, generation);
	usleep(SETTLE_US);
	attach_settle(links->context.attach);
	links->count = count;
	links->each = true;
	links->each_ns = clock_ns(CLOCK_MONOTONIC);
	log_verbose("Allocations so far: %.0f in the scope, %.0f in other processes",
		    ldexp(links->counts.inside, -WEIGHT_OBJECTS_SHIFT),
		    ldexp(links->counts.outside, -WEIGHT_OBJECTS_SHIFT));
	processes_list(links->context.processes, &known);
	for (size_t i = 0; i < known; i++)
		processes_take(links->context.processes, i);
	if (ratio > 0)
		snprintf(times, sizeof(times), "%.1f times as many calls as", ratio);
	log_info("Other processes make %s the scope: from now on they are "
		 "left alone, and a process that starts in the scope is counted some milliseconds "
		 "late (--follow: from its first instruction on, at the expense of the others)",
		 times);
	/* Those that started meanwhile. */
	err = processes_update(links->context.processes);
	return err ? err : scope_links_update(links);
}

int scope_links_judge(struct scope_links *links, uint64_t now_ns)
{
	struct call_counts now, past;
	uint64_t duration_ns = now_ns - links->begin_ns;
	int err;

	if (now_ns < scope_links_due_ns(links))
		return 0;
	err = kernel_read_calls(links->context.kernel, &now);
	if (err)
		return err;
	past = (struct call_counts){
		.inside = now.inside - links->counts.inside,
		.outside = now.outside - links->counts.outside,
		.picked_inside = now.picked_inside - links->counts.picked_inside,
		.picked_outside = now.picked_outside - links->counts.picked_outside,
	};
	links->due_ns = now_ns + WINDOW_NS;
	if (past.picked_inside + past.picked_outside < SAMPLES_MIN && duration_ns < WINDOW_MAX_NS)
		return 0;
	links->counts = now;
	links->begin_ns = now_ns;
	if (!scope_links_outnumbered(&past, duration_ns))
		return 0;
	return reach_each(links, past.inside ? (double)past.outside / past.inside : 0);
}

uint64_t scope_links_due_ns(const struct scope_links *links)
{
	return links->context.reach != REACH_BY_CALLS || links->each || links->failed
		       ? UINT64_MAX
		       : links->due_ns;
}
