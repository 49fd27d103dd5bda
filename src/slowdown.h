/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a recording will cost a process: the calls at its probe points are counted for a while, and
 * taken times the cost of a trap.
 */
#ifndef HEAPTAP_SLOWDOWN_H
#define HEAPTAP_SLOWDOWN_H

#include <stdint.h>
#include <sys/types.h>

#include "heaptap/counter.h"
#include "probe/attach.h"
#include "process_points.h"
#include "trap_cost.h"

/* What was counted, all threads together. */
struct slowdown_rates {
	uint64_t duration_ns;
	uint64_t cpu_ns;   /* that the process took, the traps of the counting included */
	uint64_t emulated; /* traps at entries, by their kind */
	uint64_t stepped;
	uint64_t allocations; /* of them, realloc included */
	uint64_t frees;
	uint64_t returning; /* allocations with a return probe, where all of them trap */
	uint64_t bytes;	    /* allocated */
	double samples;
};

/* Of one way to record. Shares: 1 is 100 %. */
struct slowdown {
	double counting_ns; /* of traps at entries, which counting has, too */
	double overhead_ns; /* in all, for what was counted */
	double traps_per_s;
	double cpu_share; /* of one CPU, to keep up the rate that was counted */
	double slowdown;  /* of the process's own CPU time, without any probe */
};

/*
 * Pure. mode: of the recording; exact: every allocation is a sample. An allocation that is sampled
 * costs the trap at its return and the walk of its stack.
 */
struct slowdown slowdown_estimate(const struct slowdown_rates *rates, const struct trap_cost *cost,
				  enum attach_mode mode, bool exact);

/* What a recording's own samples tell of its processes, all together, over some time. */
struct slowdown_samples {
	uint64_t duration_ns;
	uint64_t cpu_ns;      /* that the processes took, what the recording costs them included */
	double allocations;   /* that the samples stand for */
	double picked;	      /* samples */
	double stepped_share; /* of the probe points, those that the kernel single-steps */
	uint64_t sample_bytes;
};

/*
 * Pure. The same from a recording; frees are taken to be as many as allocations. *ret_least is
 * what it is at least, with all but a few percent certainty: a verdict should rest on that. Returns
 * false if there are too few samples to tell anything.
 */
bool slowdown_from_samples(const struct slowdown_samples *samples, const struct trap_cost *cost,
			   enum attach_mode mode, struct slowdown *ret, struct slowdown *ret_least);

/* Pure. Whether it is worth a word: it takes some time, and more than that share of the process. */
bool slowdown_exceeds(const struct slowdown *slowdown, double limit);
/* Pure. Whether samples take most of it, so that fewer of them help. */
bool slowdown_is_sampling(const struct slowdown *slowdown);

/*
 * "about 80 %", which is good within a factor of two. Where traps take most of the time a small
 * error in their cost is a large one, and it is rather more. *ret_higher is a limit in percent that
 * would allow it.
 */
#define SLOWDOWN_WORDS 32
void slowdown_words(const struct slowdown *slowdown, char text[SLOWDOWN_WORDS],
		    unsigned int *ret_higher);

/* What to do about it, to be followed by "the limit". */
const char *slowdown_remedy(const struct slowdown *slowdown);

/* Counting goes on from slowdown_begin() to slowdown_end(). */
struct slowdown_count;

/*
 * Begins to count at all points of a process, beside what is attached there already. sample_bytes:
 * of the recording. The timer, which is timed meanwhile by trap_timer_wait(), and the points must
 * stay until the end. Errors: as counter_open() and counter_add(), -ESRCH if the process is gone.
 */
int slowdown_begin(const struct trap_timer *timer, enum attach_mode mode, uint64_t sample_bytes,
		   const struct process_points *process, struct slowdown_count **ret);
/*
 * Reads what was counted since the beginning; counting goes on. Errors: -ESRCH if the process is
 * gone.
 */
int slowdown_read(struct slowdown_count *count, struct slowdown_rates *ret);
/* Of one point, in all. */
int slowdown_read_point(struct slowdown_count *count, size_t module, size_t point,
			struct counter_value *ret);
/* Removes the probes. */
void slowdown_end(struct slowdown_count *count);
DEFINE_CLEANUP(slowdown_count, struct slowdown_count *, slowdown_end)

#endif
