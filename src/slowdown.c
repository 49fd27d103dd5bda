/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "slowdown.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "counter.h"
#include "util/clock.h"

/*
 * A sample's stack walk and bookkeeping, in traps on emulated instructions: by `make bench` an
 * exact pair costs 4035 ns and an unsampled one 1753, where a trap at an entry costs 865 and one at
 * a return 480: (4035 - 1753 - 480) / 865.
 */
#define WALK_TRAPS 2.1

/* The least that is taken for a process's own time, as a share of all that was measured. */
#define LEAST_OWN_SHARE 0.02

/* Of a CPU: what takes less than that does not matter, whatever share of the process it is. */
#define LEAST_CPU_SHARE 0.01

/*
 * Of few samples one, of a small block that stands for very many, may make up the whole estimate.
 * Few blocks are smaller than this.
 */
#define LEAST_PICKED	  10
#define SMALL_BLOCK_BYTES 16.0

struct slowdown_count {
	const struct probe_points *points;
	struct counter *counter;
	uint64_t sample_bytes;
	clockid_t clock; /* the process's CPU time */
	uint64_t start_ns;
	uint64_t start_cpu_ns;
};

/* recorded: the CPU time is that of a process that is being recorded, not only counted. */
static struct slowdown estimate(const struct slowdown_rates *rates, double returns, double samples,
				const struct trap_cost *cost, bool recorded)
{
	double counting_ns = rates->emulated * cost->emulated + rates->stepped * cost->stepped;
	double overhead_ns =
		counting_ns + returns * cost->at_return + samples * WALK_TRAPS * cost->emulated;
	double own_ns = rates->cpu_ns - (recorded ? overhead_ns : counting_ns);
	double seconds = rates->duration_ns / 1e9;
	struct slowdown slowdown = {};

	if (!rates->duration_ns)
		return slowdown;
	if (own_ns < rates->cpu_ns * LEAST_OWN_SHARE)
		own_ns = rates->cpu_ns * LEAST_OWN_SHARE;
	slowdown.counting_ns = counting_ns;
	slowdown.overhead_ns = overhead_ns;
	slowdown.traps_per_s = (rates->emulated + rates->stepped + returns) / seconds;
	slowdown.cpu_share = slowdown.overhead_ns / rates->duration_ns;
	if (own_ns > 0)
		slowdown.slowdown = slowdown.overhead_ns / own_ns;
	return slowdown;
}

struct slowdown slowdown_estimate(const struct slowdown_rates *rates, const struct trap_cost *cost,
				  enum attach_mode mode, bool exact)
{
	double samples = exact ? (double)rates->allocations : rates->samples;
	double returns = mode == ATTACH_SESSION ? samples : (double)rates->returning;

	return estimate(rates, returns, samples, cost, false);
}

static struct slowdown of_calls(const struct slowdown_samples *samples, double allocations,
				const struct trap_cost *cost, enum attach_mode mode)
{
	struct slowdown_rates rates = {
		.duration_ns = samples->duration_ns,
		.cpu_ns = samples->cpu_ns,
		.emulated = 2 * allocations * (1 - samples->stepped_share),
		.stepped = 2 * allocations * samples->stepped_share,
	};

	return estimate(&rates, mode == ATTACH_SESSION ? samples->picked : allocations,
			samples->picked, cost, true);
}

bool slowdown_from_samples(const struct slowdown_samples *samples, const struct trap_cost *cost,
			   enum attach_mode mode, struct slowdown *ret, struct slowdown *ret_least)
{
	double heaviest = samples->sample_bytes / SMALL_BLOCK_BYTES;
	double least;

	if (samples->picked < LEAST_PICKED || !samples->duration_ns)
		return false;
	/* The variance of a sum of weights is at most the sum times the largest of them. */
	least = samples->allocations - 2 * sqrt(samples->allocations * heaviest);
	/* Each sample is a call that was seen. */
	if (least < samples->picked)
		least = samples->picked;
	*ret = of_calls(samples, samples->allocations, cost, mode);
	*ret_least = of_calls(samples, least, cost, mode);
	return true;
}

bool slowdown_exceeds(const struct slowdown *slowdown, double limit)
{
	return slowdown->cpu_share > LEAST_CPU_SHARE && slowdown->slowdown > limit;
}

bool slowdown_is_sampling(const struct slowdown *slowdown)
{
	return slowdown->counting_ns < slowdown->overhead_ns / 2;
}

void slowdown_words(const struct slowdown *slowdown, char text[SLOWDOWN_WORDS],
		    unsigned int *ret_higher)
{
	static const unsigned int limits[] = {50, 100, 200, 500, 1000, 2000, 5000, 10000};
	double percent = slowdown->slowdown * 100;
	size_t i = 0;

	if (percent > 1000)
		snprintf(text, SLOWDOWN_WORDS, "more than 1000 %%");
	else
		snprintf(text, SLOWDOWN_WORDS, "about %.0f %%%s", percent,
			 percent > 100 ? " or more" : "");
	while (i < ARRAY_SIZE(limits) - 1 && limits[i] < 1.5 * percent)
		i++;
	*ret_higher = limits[i];
}

const char *slowdown_remedy(const struct slowdown *slowdown)
{
	return slowdown_is_sampling(slowdown)
		       ? "most of it is for samples: raise --sample-bytes, or"
		       : "its calls trap, sampled or not: raise";
}

static int cpu_time_ns(clockid_t clock, uint64_t *ret)
{
	struct timespec now;

	/* The clock of a process that has exited is no clock. */
	if (clock_gettime(clock, &now))
		return -ESRCH;
	*ret = now.tv_sec * 1000000000ull + now.tv_nsec;
	return 0;
}

void slowdown_end(struct slowdown_count *count)
{
	if (!count)
		return;
	counter_close(count->counter);
	free(count);
}

int slowdown_begin(const struct trap_timer *timer, enum attach_mode mode, uint64_t sample_bytes,
		   const struct process_points *process, struct slowdown_count **ret)
{
	struct slowdown_count *count CLEANUP(slowdown_count) = calloc(1, sizeof(*count));
	const struct probe_points *points = process->points;
	int err;

	if (!count)
		return -ENOMEM;
	count->points = points;
	count->sample_bytes = sample_bytes;
	if (clock_getcpuclockid(process->pid, &count->clock))
		return -ESRCH;
	if (trap_timer_cost(timer).first_thread_only)
		mode = ATTACH_PERF;
	err = counter_open(mode, process->pid, sample_bytes, &count->counter);
	for (size_t i = 0; i < points->module_count && !err; i++)
		err = counter_add(count->counter, image_fd(process->images[i]),
				  &points->modules[i]);
	if (!err)
		err = cpu_time_ns(count->clock, &count->start_cpu_ns);
	if (err)
		return err;
	counter_start(count->counter);
	count->start_ns = clock_ns(CLOCK_MONOTONIC);
	*ret = take_ptr(count);
	return 0;
}

static void add_point(struct slowdown_rates *rates, const struct probe_point *point,
		      const struct counter_value *value, uint64_t sample_bytes)
{
	if (point->why_entry)
		rates->stepped += value->calls;
	else
		rates->emulated += value->calls;
	if (point->spec.kind == PROBE_FREE) {
		rates->frees += value->calls;
		return;
	}
	rates->allocations += value->calls;
	if (!(point->spec.flags & PROBE_ENTRY_ONLY))
		rates->returning += value->calls;
	rates->bytes += value->bytes;
	rates->samples += (double)value->sampled_bytes / sample_bytes;
}

int slowdown_read_point(struct slowdown_count *count, size_t module, size_t point,
			struct counter_value *ret)
{
	uint32_t index = point;

	for (size_t i = 0; i < module; i++)
		index += count->points->modules[i].count;
	return counter_read(count->counter, index, ret);
}

int slowdown_read(struct slowdown_count *count, struct slowdown_rates *ret)
{
	struct slowdown_rates rates = {};
	uint64_t cpu_ns;
	int err;

	err = cpu_time_ns(count->clock, &cpu_ns);
	if (err)
		return err;
	rates.cpu_ns = cpu_ns - count->start_cpu_ns;
	rates.duration_ns = clock_ns(CLOCK_MONOTONIC) - count->start_ns;
	for (size_t i = 0; i < count->points->module_count; i++) {
		const struct module_points *points = &count->points->modules[i];

		for (size_t n = 0; n < points->count; n++) {
			struct counter_value value;

			err = slowdown_read_point(count, i, n, &value);
			if (err)
				return err;
			add_point(&rates, &points->entries[n], &value, count->sample_bytes);
		}
	}
	*ret = rates;
	return 0;
}
