/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A window of time is looked at several times while it grows, since a verdict needs some samples.
 * Then the next one begins. As both the calls and the CPU time are those of the window, pauses of
 * the processes do not change the ratio.
 */
#include "slowdown_watch.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>

#include "cpu_times.h"
#include "heaptap/weight.h"
#include "slowdown.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/timer.h"

/* A warning's; shares: 1 is 100 %. */
#define WARN_ABOVE 0.5

/* Traps per second, of which the costs are worth to be known; fewer where there is a limit. */
#define MANY_TRAPS    20000.0
#define LIMITED_TRAPS 2000.0

/* Seconds. The first look, the next one, and all others without a limit. */
#define FIRST_PAUSE  1
#define SECOND_PAUSE 10
#define LONG_PAUSE   60
#define WINDOW_NS    60000000000ull

/* The next look comes after so many times what the last one took. */
#define REST 200

struct slowdown_watch {
	struct slowdown_watch_context context;
	struct cpu_times *times;
	int fd;
	unsigned int looks;
	uint64_t window_ns; /* CLOCK_MONOTONIC of its beginning; likewise: */
	uint64_t window_cpu_ns;
	struct call_counts window_calls;
	bool warned;
	bool described;
	bool unsure; /* at the last look: more samples are needed */
	/* The thread that measures the cost of a trap. */
	pthread_t thread;
	bool started;
	atomic_bool finished;
	int err;
	struct trap_cost cost;
};

void slowdown_watch_free(struct slowdown_watch *watch)
{
	if (!watch)
		return;
	if (watch->started)
		pthread_join(watch->thread, NULL);
	cpu_times_free(watch->times);
	if (watch->fd >= 0)
		close(watch->fd);
	free(watch);
}

static int update_times(struct slowdown_watch *watch)
{
	const struct snapshot_process *list;
	size_t count;

	list = processes_list(watch->context.processes, &count);
	return cpu_times_update(watch->times, list, count);
}

static void begin_window(struct slowdown_watch *watch, uint64_t now_ns,
			 const struct call_counts *calls)
{
	watch->window_ns = now_ns;
	watch->window_calls = *calls;
	watch->window_cpu_ns = cpu_times_ns(watch->times);
}

int slowdown_watch_new(const struct slowdown_watch_context *context, struct slowdown_watch **ret)
{
	struct slowdown_watch *watch CLEANUP(slowdown_watch) = calloc(1, sizeof(*watch));
	struct call_counts calls = {};
	int err;

	if (!watch)
		return -ENOMEM;
	watch->context = *context;
	watch->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (watch->fd < 0)
		return -errno;
	err = cpu_times_new(&watch->times);
	if (!err)
		err = update_times(watch);
	if (!err)
		err = kernel_read_calls(context->kernel, &calls);
	if (!err)
		err = timer_set(watch->fd, FIRST_PAUSE, 0);
	if (err)
		return err;
	begin_window(watch, clock_ns(CLOCK_MONOTONIC), &calls);
	*ret = take_ptr(watch);
	return 0;
}

int slowdown_watch_fd(const struct slowdown_watch *watch)
{
	return watch->fd;
}

static void *measure(void *arg)
{
	struct slowdown_watch *watch = arg;

	watch->err = trap_cost_measure(watch->context.mode, &watch->cost);
	atomic_store(&watch->finished, true);
	return NULL;
}

/* Whether the cost of a trap is known. It takes a while: the first call has it measured. */
static bool know_cost(struct slowdown_watch *watch)
{
	if (!watch->started)
		watch->started = !pthread_create(&watch->thread, NULL, measure, watch);
	if (!watch->started || !atomic_load(&watch->finished) || !watch->err)
		return watch->started && atomic_load(&watch->finished);
	if (!watch->warned)
		log_verbose("What a trap costs cannot be measured (%s): the slowdown is not known",
			    strerror(-watch->err));
	watch->warned = true;
	return false;
}

static double objects(uint64_t weight)
{
	return ldexp(weight, -WEIGHT_OBJECTS_SHIFT);
}

/* What helps where calls trap, sampled or not. */
static void advise(const struct slowdown_watch *watch, char *text, size_t size)
{
	const struct target *target = watch->context.target;

	if (target_is_single(target))
		snprintf(text, size, "`heaptap doctor -p %d` shows which calls these are",
			 target_pid(target));
	else
		snprintf(text, size, "record fewer processes (-p PID, --no-follow)");
}

/* A limit, or what a warning is for. */
static bool exceeds(const struct slowdown_watch *watch, const struct slowdown *slowdown)
{
	uint64_t max_percent = watch->context.options->max_slowdown;

	return slowdown_exceeds(slowdown, max_percent ? max_percent / 100.0 : WARN_ABOVE);
}

/* Prints what is to be said about it; an error if the session must end. */
static int judge(struct slowdown_watch *watch, const struct slowdown *slowdown,
		 const struct slowdown *least)
{
	uint64_t max_percent = watch->context.options->max_slowdown;
	const char *words = target_words(watch->context.target);
	char percent[SLOWDOWN_WORDS], advice[128];
	unsigned int higher;

	watch->unsure = exceeds(watch, slowdown) && !exceeds(watch, least);
	slowdown_words(slowdown, percent, &higher);
	advise(watch, advice, sizeof(advice));
	if (max_percent && slowdown_exceeds(least, max_percent / 100.0))
		return log_error(0,
				 "the recording ends, as it slows %s down by %s and --max-slowdown "
				 "allows %llu %%: %s the limit for a short one (--max-slowdown %u "
				 "--duration 10); %s",
				 words, percent, (unsigned long long)max_percent,
				 slowdown_remedy(slowdown), higher, advice);
	if (watch->warned || !slowdown_exceeds(least, WARN_ABOVE))
		return 0;
	watch->warned = true;
	if (slowdown_is_sampling(slowdown))
		log_warning("the recording slows %s down by %s, most of it for samples: raise "
			    "--sample-bytes",
			    words, percent);
	else
		log_warning("the recording slows %s down by %s: calls trap, sampled or not, so "
			    "keep it short (--duration 10); %s",
			    words, percent, advice);
	return 0;
}

/* old: it is the last look at this window. */
static int tell(struct slowdown_watch *watch, const struct slowdown_samples *samples,
		double outside, bool old)
{
	double outside_ns = 2 * outside * watch->cost.emulated;
	struct slowdown slowdown, least;
	int err = 0;

	if (!slowdown_from_samples(samples, &watch->cost, watch->context.mode, &slowdown, &least)) {
		watch->unsure = true;
	} else {
		err = judge(watch, &slowdown, &least);
		if (old || err || !watch->described)
			log_verbose("Slowdown: about %.0f %% in the last %.0f s, %.1f %% of a CPU, "
				    "at %.0f ns per trap",
				    100 * slowdown.slowdown, samples->duration_ns / 1e9,
				    100 * slowdown.cpu_share, watch->cost.emulated);
		watch->described = true;
	}
	if (old && outside > 0)
		log_verbose("Traps of other processes that use the same files: %.1f %% of a CPU",
			    100 * outside_ns / samples->duration_ns);
	return err;
}

/* Looks at the window so far, and begins the next one if it is old. */
static int look(struct slowdown_watch *watch)
{
	const struct slowdown_watch_context *context = &watch->context;
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct slowdown_samples samples = {
		.duration_ns = now_ns - watch->window_ns,
		.stepped_share = allocators_stepped_share(context->allocators),
		.sample_bytes = context->options->sample_bytes,
	};
	bool old = samples.duration_ns >= WINDOW_NS, many;
	struct call_counts calls;
	double outside, traps;
	int err = 0;

	if (kernel_read_calls(context->kernel, &calls))
		return 0;
	samples.allocations = objects(calls.inside - watch->window_calls.inside);
	samples.picked = calls.picked_inside - watch->window_calls.picked_inside;
	outside = objects(calls.outside - watch->window_calls.outside);
	traps = 2 * (samples.allocations + (context->options->verbose ? outside : 0));
	many = traps * 1e9 / samples.duration_ns >
	       (context->options->max_slowdown ? LIMITED_TRAPS : MANY_TRAPS);
	if ((many || old) && update_times(watch))
		return 0;
	samples.cpu_ns = cpu_times_ns(watch->times);
	samples.cpu_ns =
		samples.cpu_ns > watch->window_cpu_ns ? samples.cpu_ns - watch->window_cpu_ns : 0;
	watch->unsure = false;
	if (many && know_cost(watch))
		err = tell(watch, &samples, outside, old);
	if (old)
		begin_window(watch, now_ns, &calls);
	return err;
}

static uint64_t pause_s(const struct slowdown_watch *watch, uint64_t took_ns)
{
	uint64_t least_s = took_ns * REST / 1000000000 + 1, wanted_s = LONG_PAUSE;

	if (watch->context.options->max_slowdown || watch->unsure ||
	    (watch->started && !atomic_load(&watch->finished)))
		wanted_s = FIRST_PAUSE;
	else if (watch->looks < 6)
		wanted_s = SECOND_PAUSE;
	return wanted_s > least_s ? wanted_s : least_s;
}

int slowdown_watch_look(struct slowdown_watch *watch)
{
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int err;

	if (!timer_expired(watch->fd))
		return 0;
	err = look(watch);
	watch->looks++;
	if (!err)
		timer_set(watch->fd, pause_s(watch, clock_ns(CLOCK_MONOTONIC) - start_ns), 0);
	return err;
}
