/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One process: its allocators, what its calls cost, and the verdict. */
#include "doctor.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor_code.h"
#include "proc/process.h"
#include "samplers.h"
#include "slowdown.h"

/* `record`'s default. */
#define SAMPLE_BYTES	   (512ull << 10)
#define SAMPLE_BYTES_LABEL "default, 512K"

#define COUNT_MS 1000

/* Slowdowns that nobody notices, and that need a word. */
#define SLIGHT	   0.05
#define NOTICEABLE 0.25

static bool check_state(pid_t pid, struct process *process)
{
	int err = process_read(pid, process);

	if (err) {
		printf("Process %d\n", pid);
		if (err == -ESRCH)
			doctor_refuse("no process with PID %d: `ps -e` lists the running ones",
				      pid);
		else
			doctor_refuse("/proc/%d cannot be read (%s)", pid, strerror(-err));
		return false;
	}
	printf("Process %d (%s)\n", pid, process->comm);
	if (process->thread)
		doctor_refuse("this is a thread of process %d: use -p %d, which takes in all its "
			      "threads",
			      process->tgid, process->tgid);
	else if (process->kernel_thread)
		doctor_refuse("a kernel thread has no heap: give the PID of a user process");
	else if (process->zombie)
		doctor_refuse("it has exited and waits for its parent: give the PID of a running "
			      "process");
	else if (pid == getpid())
		doctor_refuse("this is heaptap itself: give the PID of another process");
	else
		return true;
	return false;
}

static void describe_program(pid_t pid)
{
	char path[64], exe[4096];
	struct stat st;

	if (process_exe(pid, exe, sizeof(exe)))
		doctor_say("program", "%s", exe);
	/* A folder has a link from each folder in it, and two of its own. */
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	if (!stat(path, &st) && st.st_nlink > 2)
		doctor_say("threads", "%lu", (unsigned long)st.st_nlink - 2);
}

/* What target_open() refuses. */
static bool check_seccomp(const struct process *process)
{
	if (!process->seccomp_mode) {
		doctor_say("seccomp", "none");
		return true;
	}
	if (!process_seccomp_kills_return_probes()) {
		doctor_say("seccomp", "a filter, which this kernel does not show return probes to");
		return true;
	}
	doctor_refuse("its seccomp filter may kill it at the first sample on this kernel (6.11 to "
		      "6.13): use `heaptap record --force` if the filter is known to allow the "
		      "uretprobe system call");
	return false;
}

static bool explain_none(const struct process_points *process)
{
	char described[2048];

	if (runtimes_count(process->runtimes)) {
		doctor_refuse("no allocator found, but there is %s",
			      runtimes_explain_none(process->runtimes));
		return false;
	}
	locator_describe(process->locator, described, sizeof(described));
	if (*described)
		doctor_refuse("no allocator found: %s", described);
	else
		doctor_refuse("no allocator found: none of its %zu files defines malloc and free; "
			      "does it use functions with a prefix (--symbol-prefix)? `heaptap "
			      "record` needs none with --mode faults and --mmap-only",
			      process->count);
	return false;
}

static void describe_point(const struct probe_point *point, struct slowdown_count *count,
			   size_t module, size_t index)
{
	unsigned long long offset = point->spec.offset - point->entry_offset;
	struct counter_value value;
	char calls[48] = "";

	if (count && !slowdown_read_point(count, module, index, &value) && value.calls)
		snprintf(calls, sizeof(calls), ", %llu calls", value.calls);
	printf("    %s+%llu: %s%s%s\n", point->name, offset,
	       point->why_entry ? "SLOW, single-stepped, as " : "emulated",
	       point->why_entry ? point->why_entry : "", calls);
}

static void describe_left_out(const struct module_points *points)
{
	size_t delegating = 0;

	for (size_t i = 0; i < points->left_out_count; i++) {
		const struct left_out *left_out = &points->left_out[i];

		delegating += left_out->delegates;
		if (!left_out->delegates)
			printf("    %s: not probed, %s%s%s\n", left_out->name, left_out->reason,
			       left_out->other ? ", " : "", left_out->other ? left_out->other : "");
	}
	if (delegating)
		printf("    and %zu more that only call%s others: not probed\n", delegating,
		       delegating == 1 ? "s" : "");
}

static void describe_points(const struct process_points *process, struct slowdown_count *count)
{
	for (size_t i = 0; i < process->count; i++) {
		const struct module_points *points = &process->points->modules[i];
		const struct image *image = process->files[i].image;
		size_t slow = 0;

		if (!points->count)
			continue;
		for (size_t n = 0; n < points->count; n++)
			slow += points->entries[n].why_entry != NULL;
		doctor_say("allocator", "%s (build-id %.16s): %zu probe points, %zu of them slow",
			   image_path(image),
			   *image_build_id(image) ? image_build_id(image) : "none", points->count,
			   slow);
		for (size_t n = 0; n < points->count; n++)
			describe_point(&points->entries[n], count, i, n);
		describe_left_out(points);
	}
}

static void describe_runtimes(const struct process_points *process)
{
	const char *const *texts = runtimes_describe(process->runtimes);

	for (size_t i = 0; i < runtimes_count(process->runtimes); i++)
		doctor_say("runtime", "%s", texts[i]);
}

static void describe_jemalloc(const struct sampler_survey *survey)
{
	if (!survey->has_jemalloc)
		return;
	if (survey->jemalloc_interval)
		doctor_say("sampler",
			   "jemalloc's own, one sample per %llu bytes: `heaptap record` takes "
			   "these and nothing else traps; the costs below are those of --mode heap",
			   (unsigned long long)survey->jemalloc_interval);
	else
		doctor_say("sampler",
			   "jemalloc's own, which no MALLOC_CONF turns on: started with "
			   "MALLOC_CONF=prof:true `heaptap record` takes its samples and nothing "
			   "else traps");
}

/* What `record --mode sampler` would take. Returns whether there is anything. */
static bool describe_sampler(const struct process_points *process)
{
	struct sampler_survey survey = {.locator = process->locator};

	sampler_survey_ask(&survey, process->pid);
	for (size_t i = 0; i < process->count; i++)
		if (sampler_survey_image(&survey, process->images[i], false))
			return false;
	if (survey.tells)
		doctor_say("sampler",
			   "%s tells of its samples (USDT probes otel_memory): `heaptap record` "
			   "takes these and nothing else traps; %sthe costs below are those of "
			   "--mode heap",
			   survey.told_in,
			   survey.frees_unknown ? "with --mode sampler, as in use is not known; "
						: "");
	if (survey.has_countdown && survey.interval && survey.has_blocks)
		doctor_say(
			"sampler",
			"tcmalloc's own, one sample per %llu bytes: `heaptap record` takes these "
			"and nothing else traps; the costs below are those of --mode heap",
			(unsigned long long)survey.interval);
	else if (survey.has_countdown)
		doctor_say(
			"sampler",
			"tcmalloc's countdown: `heaptap record --mode sampler` gives what is "
			"allocated, not what is in use, from one sample per 16 MB and thread, and "
			"nothing else traps; started with TCMALLOC_SAMPLE_PARAMETER=524288 it "
			"gives both");
	describe_jemalloc(&survey);
	if (!survey.tells && !survey.has_countdown && !survey.has_jemalloc)
		doctor_say("sampler", "none of its own, so that each call traps");
	return survey.tells || survey.has_countdown || survey.has_jemalloc;
}

static void describe_slowdown(const char *label, const struct slowdown *slowdown)
{
	doctor_say(label,
		   "%+.1f %% CPU time for the same work; %.0f traps per second, %.1f %% of a "
		   "CPU",
		   slowdown->slowdown * 100, slowdown->traps_per_s, slowdown->cpu_share * 100);
}

static void judge(const struct slowdown_rates *rates, const struct slowdown *at_default,
		  const struct slowdown *exact)
{
	if (!rates->allocations && !rates->frees)
		doctor_say("verdict", "fine while it allocates nothing, as in this second: look "
				      "again when it is at work");
	else if (at_default->slowdown < SLIGHT && exact->slowdown < SLIGHT)
		doctor_say("verdict", "fine by default, and with --sample-bytes 1, which "
				      "counts every allocation");
	else if (at_default->slowdown < SLIGHT)
		doctor_say("verdict",
			   "fine by default; with --sample-bytes 1 expect "
			   "%.0f %%",
			   exact->slowdown * 100);
	else if (slowdown_is_sampling(at_default))
		doctor_say("verdict",
			   "expect %.0f %% by default, most of it for samples: "
			   "raise --sample-bytes",
			   at_default->slowdown * 100);
	else if (at_default->slowdown < NOTICEABLE)
		doctor_say("verdict", "expect %.0f %% by default; fine for a while",
			   at_default->slowdown * 100);
	else
		/* Where traps take most of the time, a small error in their cost is a large one. */
		doctor_say("verdict",
			   "expect %.0f %%%s by default: its calls trap, sampled or not, "
			   "so --sample-bytes does not help; keep it short, as with --duration 10",
			   at_default->slowdown * 100, at_default->slowdown > 1 ? " or more" : "");
}

/* What the calls of a second are, and what traps cost in that second. */
struct cost {
	struct trap_timer *timer;
	struct slowdown_count *count; /* goes on */
	struct slowdown_rates rates;
	struct trap_cost trap;
};

static int count_calls(const struct doctor *doctor, const struct process_points *process,
		       struct cost *cost)
{
	int err = trap_timer_open(doctor->mode, &cost->timer);

	if (!err)
		err = slowdown_begin(cost->timer, doctor->mode, SAMPLE_BYTES, process,
				     &cost->count);
	if (err)
		return err;
	trap_timer_wait(cost->timer, COUNT_MS);
	cost->trap = trap_timer_cost(cost->timer);
	return slowdown_read(cost->count, &cost->rates);
}

static void describe_cost(const struct doctor *doctor, const struct cost *cost)
{
	const struct slowdown_rates *rates = &cost->rates;
	struct slowdown at_default = slowdown_estimate(rates, &cost->trap, doctor->mode, false);
	struct slowdown exact = slowdown_estimate(rates, &cost->trap, doctor->mode, true);
	double seconds = rates->duration_ns / 1e9;

	doctor_say("calls",
		   "%.0f allocations (%.1f MB) and %.0f frees per second, in %.2f s with %.0f %% "
		   "of a CPU",
		   rates->allocations / seconds, rates->bytes / seconds / (1 << 20),
		   rates->frees / seconds, seconds, 100.0 * rates->cpu_ns / rates->duration_ns);
	doctor_say("of it counting", "%.0f %% of a CPU, by %.0f ns per trap in that second",
		   100 * at_default.counting_ns / rates->duration_ns, cost->trap.emulated);
	describe_slowdown(SAMPLE_BYTES_LABEL, &at_default);
	describe_slowdown("--sample-bytes 1", &exact);
	judge(rates, &at_default, &exact);
}

static bool report(const struct doctor *doctor, const struct process_points *process,
		   struct cost *cost)
{
	bool found = process_points_count(process) > 0, samples;
	int err = found && doctor->can_probe ? count_calls(doctor, process, cost) : 0;

	if (process->unopened_count)
		doctor_say("not opened", "%zu files, such as %s: %s", process->unopened_count,
			   process->unopened, strerror(-process->unopened_err));
	describe_points(process, err ? NULL : cost->count);
	if (found)
		describe_runtimes(process);
	samples = describe_sampler(process);
	doctor_describe_code(doctor, process);
	if (!found)
		return samples || explain_none(process);
	if (err == -ESRCH)
		doctor_refuse("it exited while its calls were counted");
	else if (err)
		doctor_refuse("its calls cannot be counted (%s)", strerror(-err));
	else if (!doctor->can_probe)
		doctor_say("calls", "not counted: see what is missing above");
	else
		describe_cost(doctor, cost);
	return !err;
}

bool doctor_process(const struct doctor *doctor, pid_t pid)
{
	struct process_points *points CLEANUP(process_points) = NULL;
	struct process process;
	struct cost cost = {};
	bool possible;
	int err;

	if (!check_state(pid, &process))
		return false;
	describe_program(pid);
	possible = check_seccomp(&process);
	err = process_points_find(pid, &doctor->points, &points);
	if (!err) {
		possible = report(doctor, points, &cost) && possible;
		slowdown_end(cost.count);
		trap_timer_close(cost.timer);
		return possible;
	}
	if (err == -ESRCH)
		doctor_refuse("it has exited");
	else if (err == -EACCES || err == -EPERM)
		doctor_refuse("its files may not be looked into: run heaptap as root, with sudo");
	else
		doctor_refuse("its files cannot be searched for allocators (%s)", strerror(-err));
	return false;
}
