/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The machine and the user's rights. What can be tried is tried: the programs are loaded and a
 * probe is placed on heaptap itself. The rest only explains why something does not work.
 */
#include "doctor.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/utsname.h>

#include "kernel.h"
#include "preflight.h"
#include "proc/process_events.h"
#include "util/clock.h"

#define CAP_BIT(number) (1ull << (number))

/* linux/capability.h: of which ones heaptap makes use. */
#define DAC_READ_SEARCH CAP_BIT(2)
#define SYS_PTRACE	CAP_BIT(19)
#define SYS_ADMIN	CAP_BIT(21)
#define SYS_NICE	CAP_BIT(23)
#define PERFMON		CAP_BIT(38)
#define BPF		CAP_BIT(39)

static const struct {
	uint64_t any; /* one of these is enough */
	const char *name;
	bool required;
	const char *purpose;
} capabilities[] = {
	{BPF | SYS_ADMIN, "CAP_BPF", true, "to load BPF programs"},
	{PERFMON | SYS_ADMIN, "CAP_PERFMON", true, "to place probes"},
	{SYS_PTRACE, "CAP_SYS_PTRACE", true, "to open the files and the memory of a process"},
	{SYS_NICE, "CAP_SYS_NICE", false,
	 "for real-time priority, without which C++ exceptions may come too late"},
	{DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", false,
	 "for processes whose files only their user may read"},
};

/* The first line of a file, or "". */
static void read_line(const char *path, char *text, size_t size)
{
	_cleanup_fclose_ FILE *file = fopen(path, "re");

	if (!file || !fgets(text, size, file))
		*text = '\0';
	text[strcspn(text, "\n")] = '\0';
}

static uint64_t effective_capabilities(void)
{
	_cleanup_fclose_ FILE *file = fopen("/proc/self/status", "re");
	unsigned long long value = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &value) == 1)
			return value;
	return 0;
}

static bool check_rights(void)
{
	uint64_t have = effective_capabilities();
	bool possible = true, complete = true;

	if (geteuid()) {
		doctor_refuse("heaptap needs root to place probes and read other processes: run "
			      "it with sudo");
		possible = false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(capabilities); i++) {
		if (have & capabilities[i].any)
			continue;
		complete = false;
		if (!capabilities[i].required || !possible)
			doctor_say("missing", "%s, %s", capabilities[i].name,
				   capabilities[i].purpose);
		else
			doctor_refuse("%s is missing, %s: give it to root's shell or container",
				      capabilities[i].name, capabilities[i].purpose);
		if (capabilities[i].required && !geteuid())
			possible = false;
	}
	if (complete)
		doctor_say("capabilities", "all that are needed");
	if (!preflight_in_initial_pid_namespace()) {
		doctor_refuse("this is a PID namespace of its own, where PIDs mean something else: "
			      "run heaptap on the host, or in a container with the host's PID "
			      "namespace");
		possible = false;
	}
	return possible;
}

static void describe_lockdown(void)
{
	char text[128];

	read_line("/sys/kernel/security/lockdown", text, sizeof(text));
	if (strstr(text, "[confidentiality]"))
		doctor_say("lockdown", "confidentiality: BPF programs may not read the kernel's "
				       "memory, and heaptap's are refused");
	else if (strstr(text, "[integrity]"))
		doctor_say("lockdown", "integrity: harmless, heaptap's programs write nothing");
	else
		doctor_say("lockdown", "%s", *text ? "none" : "none known");
}

static void describe_paranoid(void)
{
	char text[32];

	read_line("/proc/sys/kernel/perf_event_paranoid", text, sizeof(text));
	if (*text)
		doctor_say("perf paranoia", "perf_event_paranoid is %s: no matter with CAP_PERFMON",
			   text);
}

/* The ways to attach, best first. */
static bool check_modes(struct doctor *doctor)
{
	static const char *const names[] = {
		[ATTACH_SESSION] = "uprobe sessions",
		[ATTACH_MULTI] = "uprobe_multi",
		[ATTACH_PERF] = "perf uprobes",
	};
	static const char *const uses[] = {
		[ATTACH_SESSION] = "an allocation that is not sampled costs one trap",
		[ATTACH_MULTI] = "all probes of a file are placed at once",
		[ATTACH_PERF] = "one event per probe",
	};
	static const char *const lacks[] = {
		[ATTACH_SESSION] = "every allocation also costs a trap at its return (Linux 6.13)",
		[ATTACH_MULTI] = "probes are placed and removed one by one (Linux 6.6)",
		[ATTACH_PERF] = "CONFIG_UPROBE_EVENTS is missing",
	};
	enum attach_mode best = ATTACH_AUTO;

	for (enum attach_mode mode = ATTACH_SESSION; mode <= ATTACH_PERF; mode++) {
		bool has = attach_has_mode(mode);

		doctor_say(names[mode], "%s: %s", has ? "yes" : "no", (has ? uses : lacks)[mode]);
		if (has && best == ATTACH_AUTO)
			best = mode;
	}
	if (best == ATTACH_AUTO) {
		doctor_refuse("this kernel lets no BPF program be attached to user code: it needs "
			      "CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS");
		return false;
	}
	if (doctor->mode == ATTACH_AUTO)
		doctor->mode = best;
	/* A kernel that has a mode has the ones after it too. */
	if (doctor->mode < best) {
		doctor_refuse("this kernel has no attach mode '%s': leave --attach out",
			      attach_mode_name(doctor->mode));
		return false;
	}
	doctor_say("attach mode", "%s", attach_mode_name(doctor->mode));
	return true;
}

/* Ring buffers, task storage, iterators, tracepoints: heaptap's own programs need them all. */
static bool check_programs(const struct doctor *doctor)
{
	const struct kernel_options options = {
		.sample_bytes = 512u << 10,
		.max_live = 1024,
		.max_stacks = 1024,
		.max_processes = 64,
		.mode = doctor->mode,
	};
	struct kernel *kernel CLEANUP(kernel) = NULL;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int err;

	err = kernel_open(&options, &kernel);
	if (err == -ENOENT)
		doctor_refuse("the kernel has no BTF: it needs CONFIG_DEBUG_INFO_BTF, as Debian's "
			      "have");
	else if (err)
		doctor_refuse("heaptap's BPF programs cannot be loaded (%s): `heaptap record -v` "
			      "shows what the kernel says",
			      strerror(-err));
	if (err)
		return false;
	err = kernel_attach_lifecycle(kernel);
	if (err) {
		doctor_refuse("the tracepoints of exec and exit cannot be attached to (%s)",
			      strerror(-err));
		return false;
	}
	doctor_say("BPF programs",
		   "load in %.0f ms: ring buffers, task storage, iterators and tracepoints are "
		   "there",
		   (clock_ns(CLOCK_MONOTONIC) - start_ns) / 1e6);
	return true;
}

static void check_events(void)
{
	struct process_events *events CLEANUP(process_events) = NULL;
	int err = process_events_open(&events);

	if (err)
		doctor_say("mapping records",
			   "no (%s): an allocator that is loaded later is not "
			   "seen",
			   strerror(-err));
	else
		doctor_say("mapping records", "yes: an allocator that is loaded later is found");
}

static bool check_cost(struct doctor *doctor)
{
	struct trap_cost *cost = &doctor->cost;
	int err;

	err = trap_cost_measure(doctor->mode, cost);
	if (err) {
		doctor_refuse("a probe on heaptap itself does not work (%s)", strerror(-err));
		return false;
	}
	if (cost->first_thread_only)
		doctor_say("note",
			   "this kernel's uprobe_multi sees the first thread of a process only: "
			   "perf uprobes are used, also by `heaptap record`");
	doctor_say(
		"cost of a trap",
		"%.0f ns, %.1f times as much (%.0f ns) where the kernel single-steps; %.0f ns at "
		"a return",
		cost->emulated, cost->stepped / cost->emulated, cost->stepped, cost->at_return);
	return true;
}

bool doctor_machine(struct doctor *doctor)
{
	bool has_btf = !access("/sys/kernel/btf/vmlinux", R_OK), possible;
	struct utsname name = {};

	uname(&name);
	printf("Machine: Linux %s, %s, %ld CPUs\n", name.release, name.machine,
	       sysconf(_SC_NPROCESSORS_ONLN));
	doctor_say("kernel types", "%s", has_btf ? "yes (BTF)" : "no (BTF): nothing works");
	describe_lockdown();
	describe_paranoid();
	doctor_say("mounts", "/proc and /sys are all; tracefs and bpffs are not needed");
	possible = check_rights();
	if (!possible) {
		doctor_say("the rest", "is not known without these rights");
		return false;
	}
	if (!check_modes(doctor) || !check_programs(doctor))
		return false;
	check_events();
	doctor->can_probe = check_cost(doctor);
	return doctor->can_probe;
}
