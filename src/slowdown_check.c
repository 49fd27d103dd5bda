/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "slowdown_check.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "proc/process.h"
#include "process_points.h"
#include "slowdown.h"
#include "util/log.h"

/* At a time. */
#define MAX_COUNTED 16

#define COUNT_MS 300

/* In which those are found that use the most CPU, if there are more. */
#define CHOOSE_MS 100

struct check {
	const struct target *target;
	struct process_points_options points;
	enum attach_mode mode;
	uint64_t sample_bytes;
	uint64_t max_percent;
};

struct candidate {
	pid_t pid;
	uint64_t cpu_ns;
};

struct counted {
	pid_t pid;
	struct process_points *points;
	struct slowdown_count *count; /* NULL: it has no allocator, or is gone */
};

static uint64_t cpu_ns(pid_t pid)
{
	struct timespec now;
	clockid_t clock;

	/* Who is gone uses none. */
	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &now))
		return 0;
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int by_cpu(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->cpu_ns < y->cpu_ns) - (x->cpu_ns > y->cpu_ns);
}

static void sort_by_cpu(struct candidate *list, size_t count)
{
	const struct timespec pause = {.tv_nsec = CHOOSE_MS * 1000000};

	for (size_t i = 0; i < count; i++)
		list[i].cpu_ns = cpu_ns(list[i].pid);
	nanosleep(&pause, NULL);
	for (size_t i = 0; i < count; i++) {
		uint64_t now_ns = cpu_ns(list[i].pid);

		list[i].cpu_ns = now_ns > list[i].cpu_ns ? now_ns - list[i].cpu_ns : 0;
	}
	qsort(list, count, sizeof(*list), by_cpu);
}

/* The PIDs to count; *ret_count of them. */
static int choose(const struct target *target, pid_t pids[MAX_COUNTED], size_t *ret_count)
{
	_cleanup_free_ struct candidate *list = NULL;
	size_t count = 0;

	while (target_member(target, count))
		count++;
	list = calloc(count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		list[i].pid = target_member(target, i);
	if (count > MAX_COUNTED) {
		sort_by_cpu(list, count);
		log_warning("of %zu processes, the %d that use the most CPU are checked for "
			    "--max-slowdown",
			    count, MAX_COUNTED);
		count = MAX_COUNTED;
	}
	for (size_t i = 0; i < count; i++)
		pids[i] = list[i].pid;
	*ret_count = count;
	return 0;
}

/* Who is gone, or cannot be looked at, is told of by what comes next. */
static void begin_count(const struct check *check, const struct trap_timer *timer,
			struct counted *counted)
{
	int err = process_points_find(counted->pid, &check->points, &counted->points);

	if (!err && process_points_count(counted->points))
		err = slowdown_begin(timer, check->mode, check->sample_bytes, counted->points,
				     &counted->count);
	if (err && err != -ESRCH)
		log_warning("the calls of PID %d cannot be counted (%s): it is not checked for "
			    "--max-slowdown",
			    counted->pid, strerror(-err));
}

static int refuse(const struct check *check, pid_t pid, const struct slowdown *slowdown)
{
	char words[SLOWDOWN_WORDS];
	struct process process = {};
	unsigned int higher;

	process_read(pid, &process);
	slowdown_words(slowdown, words, &higher);
	return log_error(0,
			 "the recording would slow PID %d (%s) down by %s, and --max-slowdown "
			 "allows %llu %%: %s the limit for a short one (--max-slowdown %u "
			 "--duration 10)%s; `heaptap doctor -p %d` shows which calls these are",
			 pid, process.comm, words, (unsigned long long)check->max_percent,
			 slowdown_remedy(slowdown), higher,
			 target_is_single(check->target) ? "" : ", or leave this process out", pid);
}

/* Of those that were counted, judges the worst. */
static int judge(const struct check *check, const struct trap_timer *timer,
		 const struct counted *list, size_t count)
{
	const struct trap_cost cost = trap_timer_cost(timer);
	struct slowdown worst = {};
	pid_t worst_pid = 0;

	for (size_t i = 0; i < count; i++) {
		struct slowdown slowdown;
		struct slowdown_rates rates;

		if (!list[i].count || slowdown_read(list[i].count, &rates))
			continue;
		slowdown = slowdown_estimate(&rates, &cost, check->mode, check->sample_bytes == 1);
		log_verbose("Slowdown to expect of PID %d: %.0f %%, %.1f %% of a CPU", list[i].pid,
			    100 * slowdown.slowdown, 100 * slowdown.cpu_share);
		if (!slowdown_exceeds(&slowdown, worst.slowdown))
			continue;
		worst = slowdown;
		worst_pid = list[i].pid;
	}
	if (!slowdown_exceeds(&worst, check->max_percent / 100.0))
		return 0;
	return refuse(check, worst_pid, &worst);
}

static int count_and_judge(const struct check *check)
{
	struct trap_timer *timer CLEANUP(trap_timer) = NULL;
	struct counted list[MAX_COUNTED] = {};
	pid_t pids[MAX_COUNTED];
	size_t count = 0;
	int err;

	err = choose(check->target, pids, &count);
	if (!err)
		err = trap_timer_open(check->mode, &timer);
	if (err)
		return log_error(err, "cannot find out what a trap costs, for --max-slowdown");
	for (size_t i = 0; i < count; i++) {
		list[i].pid = pids[i];
		begin_count(check, timer, &list[i]);
	}
	trap_timer_wait(timer, COUNT_MS);
	err = judge(check, timer, list, count);
	for (size_t i = 0; i < count; i++) {
		slowdown_end(list[i].count);
		process_points_free(list[i].points);
	}
	return err;
}

int slowdown_check(const struct session_options *options, enum attach_mode mode,
		   const struct target *target)
{
	const struct check check = {
		.target = target,
		.points =
			{
				.symbol_prefix = options->symbol_prefix,
				.signature_files = options->signature_files,
				.signature_file_count = options->signature_file_count,
				.debug_dirs = options->debug_dirs,
				.debug_dir_count = options->debug_dir_count,
				.plain_entries = options->plain_entries,
			},
		.mode = mode,
		.sample_bytes = options->sample_bytes,
		.max_percent = options->max_slowdown,
	};

	/* A command has called nothing yet. */
	if (!options->max_slowdown || options->target.command)
		return 0;
	return count_and_judge(&check);
}
