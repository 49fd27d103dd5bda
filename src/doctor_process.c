/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One process: its allocators, what its calls cost, and the verdict. */
#include "doctor.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "doctor_code.h"
#include "probe/catalog.h"
#include "proc/process.h"
#include "slowdown.h"

/* `record`'s default. */
#define SAMPLE_BYTES (512ull << 10)

#define COUNT_SECONDS 1

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
	unsigned int kernel = doctor_kernel();

	if (!process->seccomp_mode) {
		doctor_say("seccomp", "none");
		return true;
	}
	if (kernel < 611 || kernel >= 614) {
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
			      "does it use functions with a prefix (--symbol-prefix)?",
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
		snprintf(calls, sizeof(calls), "%llu calls", value.calls);
	printf("    %-30s %-12s +%-4llu %s", point->name, point->why_entry ? "SLOW" : "emulated",
	       offset, calls);
	if (point->why_entry)
		printf("%s(single-stepped: %s)", *calls ? " " : "", point->why_entry);
	putchar('\n');
}

static void describe_left_out(const struct module_points *points)
{
	size_t delegating = 0;

	for (size_t i = 0; i < points->left_out_count; i++) {
		const struct left_out *left_out = &points->left_out[i];

		delegating += left_out->delegates;
		if (!left_out->delegates)
			printf("    %-30s not probed: %s%s%s\n", left_out->name, left_out->reason,
			       left_out->other ? ", " : "", left_out->other ? left_out->other : "");
	}
	if (delegating)
		printf("    (%zu that only call%s others)\n", delegating,
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

static void describe_slowdown(const char *label, const struct slowdown *slowdown)
{
	doctor_say(label,
		   "%+.1f %% CPU time for the same work; %.0f traps per second, %.1f %% of a "
		   "CPU",
		   slowdown->slowdown * 100, slowdown->traps_per_s, slowdown->cpu_share * 100);
}

static void judge(const struct slowdown_rates *rates, const struct slowdown *at_default,
		  const struct slowdown *exact, const struct doctor *doctor)
{
	double of_samples = rates->samples * (doctor->cost.at_return + 2 * doctor->cost.emulated);

	if (!rates->allocations && !rates->frees)
		doctor_say("verdict", "fine while it allocates nothing, as in this second: look "
				      "again when it is at work");
	else if (at_default->slowdown < SLIGHT && exact->slowdown < SLIGHT)
		doctor_say("verdict", "fine at the default rate, and with --sample-bytes 1, which "
				      "counts every allocation");
	else if (at_default->slowdown < SLIGHT)
		doctor_say("verdict",
			   "fine at the default rate; with --sample-bytes 1 expect "
			   "%.0f %%",
			   exact->slowdown * 100);
	else if (of_samples > at_default->overhead_ns / 2)
		doctor_say("verdict",
			   "expect %.0f %% at the default rate, most of it for samples: "
			   "raise --sample-bytes",
			   at_default->slowdown * 100);
	else if (at_default->slowdown < NOTICEABLE)
		doctor_say("verdict", "expect %.0f %% at the default rate; fine for a while",
			   at_default->slowdown * 100);
	else
		doctor_say("verdict",
			   "expect %.0f %% at the default rate, for each call traps and "
			   "sampling less does not help: keep it short, as with "
			   "--duration 10",
			   at_default->slowdown * 100);
}

/* Counts for a second. Returns NULL, and says why, if that cannot be done. */
static struct slowdown_count *count_calls(const struct doctor *doctor,
					  const struct process_points *process,
					  struct slowdown_rates *ret)
{
	const struct timespec while_counting = {.tv_sec = COUNT_SECONDS};
	struct slowdown_count *count CLEANUP(slowdown_count) = NULL;
	enum attach_mode mode = doctor->cost.first_thread_only ? ATTACH_PERF : doctor->mode;
	int err;

	err = slowdown_begin(mode, process->pid, SAMPLE_BYTES, process->images, process->points,
			     &count);
	if (!err) {
		nanosleep(&while_counting, NULL);
		err = slowdown_read(count, ret);
	}
	if (!err)
		return take_ptr(count);
	if (err == -ESRCH)
		doctor_refuse("it exited while its calls were counted");
	else
		doctor_refuse("its calls cannot be counted (%s)", strerror(-err));
	return NULL;
}

static void describe_rates(const struct doctor *doctor, const struct slowdown_rates *rates)
{
	double seconds = rates->duration_ns / 1e9;
	struct slowdown at_default, exact;

	at_default = slowdown_estimate(rates, &doctor->cost, doctor->mode, false);
	exact = slowdown_estimate(rates, &doctor->cost, doctor->mode, true);
	doctor_say("rate",
		   "%.0f allocations (%.1f MB) and %.0f frees per second, in %.2f s with %.0f %% "
		   "of a CPU",
		   rates->allocations / seconds, rates->bytes / seconds / (1 << 20),
		   rates->frees / seconds, seconds, 100.0 * rates->cpu_ns / rates->duration_ns);
	describe_slowdown("default rate", &at_default);
	describe_slowdown("exact", &exact);
	judge(rates, &at_default, &exact, doctor);
}

static bool report(const struct doctor *doctor, const struct process_points *process, bool possible)
{
	struct slowdown_count *count CLEANUP(slowdown_count) = NULL;
	bool found = process_points_count(process) > 0;
	struct slowdown_rates rates = {};

	if (process->unopened_count)
		doctor_say("not opened", "%s and so %zu files in all: %s", process->unopened,
			   process->unopened_count, strerror(-process->unopened_err));
	if (found && doctor->can_probe) {
		count = count_calls(doctor, process, &rates);
		possible = possible && count;
	}
	describe_points(process, count);
	if (!found)
		possible = explain_none(process);
	else
		describe_runtimes(process);
	doctor_describe_code(doctor, process);
	if (count)
		describe_rates(doctor, &rates);
	else if (found && !doctor->can_probe)
		doctor_say("rate", "not counted: that needs the rights that are missing");
	return possible;
}

bool doctor_process(const struct doctor *doctor, pid_t pid)
{
	struct process_points *points CLEANUP(process_points) = NULL;
	struct process process;
	bool possible;
	int err;

	if (!check_state(pid, &process))
		return false;
	describe_program(pid);
	possible = check_seccomp(&process);
	err = process_points_find(pid, &doctor->points, &points);
	if (!err)
		return report(doctor, points, possible);
	if (err == -ESRCH)
		doctor_refuse("it has exited");
	else if (err == -EACCES || err == -EPERM)
		doctor_refuse("its files may not be looked into: run heaptap as root, with sudo");
	else
		doctor_refuse("its files cannot be searched for allocators (%s)", strerror(-err));
	return false;
}
