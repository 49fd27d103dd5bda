/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "preflight.h"

#include <errno.h>

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trap_cost.h"
#include "util/log.h"

/* The kernel side knows processes by their ids in the initial PID namespace, and so must we. */
#define INITIAL_PID_NAMESPACE 0xeffffffcu

bool preflight_in_initial_pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) || st.st_ino == INITIAL_PID_NAMESPACE;
}

/* root who may not is in a container, or its kernel is locked down. */
#define WHY_NOT_ROOT                                                                               \
	"CAP_BPF or CAP_PERFMON is missing, as in a container without them, or the kernel is "     \
	"locked down: run heaptap on the host, or in a container with --privileged; `heaptap "     \
	"doctor` says which it is"

/* See struct trap_cost. */
static bool sees_first_thread_only(void)
{
	struct trap_timer *timer CLEANUP(trap_timer) = NULL;

	if (trap_timer_open(ATTACH_MULTI, &timer))
		return false;
	trap_timer_round(timer);
	return trap_timer_cost(timer).first_thread_only;
}

int preflight_check(enum attach_mode wanted, enum attach_mode *ret)
{
	enum attach_mode best;
	int err;

	if (geteuid())
		return log_error(0,
				 "heaptap needs root to place probes and read other processes: run "
				 "it with sudo");
	if (!preflight_in_initial_pid_namespace())
		return log_error(
			0, "heaptap runs in a PID namespace of its own, where PIDs mean something "
			   "else: run it on the host, or in a container with the host's PID "
			   "namespace");
	err = attach_probe_mode(&best);
	if (err)
		return log_error(err,
				 "this kernel lets no BPF program be attached to user code: it "
				 "needs CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS");
	/* A kernel that has a mode has the ones after it too. */
	if (wanted != ATTACH_AUTO && wanted < best)
		return log_error(
			0,
			"this kernel has no attach mode '%s': leave --attach out, or use its "
			"best, '%s'",
			attach_mode_name(wanted), attach_mode_name(best));
	*ret = wanted == ATTACH_AUTO ? best : wanted;
	if (*ret == ATTACH_MULTI && sees_first_thread_only()) {
		log_verbose("On this kernel, links of mode 'multi' to a process see its first "
			    "thread only");
		*ret = ATTACH_PERF;
	}
	log_verbose("Attach mode: %s", attach_mode_name(*ret));
	return 0;
}

int preflight_load(const struct kernel_options *options, struct kernel **ret)
{
	struct kernel *kernel CLEANUP(kernel) = NULL;
	int err = kernel_open(options, &kernel);

	if (err == -ENOENT)
		return log_error(0, "the kernel has no BTF (/sys/kernel/btf/vmlinux is missing): "
				    "heaptap needs a kernel built with CONFIG_DEBUG_INFO_BTF, as "
				    "Debian's are");
	if (err == -EPERM)
		return log_error(0, "not allowed to load BPF programs: " WHY_NOT_ROOT);
	if (err)
		return log_error(err,
				 "cannot load the BPF programs for attach mode '%s' (-v shows what "
				 "the kernel says, `heaptap doctor` what is missing)",
				 attach_mode_name(options->mode));
	err = kernel_attach_lifecycle(kernel);
	if (err)
		return log_error(err, "cannot attach to the fork, exec and exit tracepoints "
				      "(`heaptap doctor` says what is missing)");
	*ret = take_ptr(kernel);
	return 0;
}

int preflight_faults(const struct kernel *kernel, struct kernel_faults **ret)
{
	const struct fault_parts parts = kernel_fault_parts(kernel);
	int err = kernel_faults_find_tables(&parts);

	if (err)
		log_warning("page tables cannot be read (%s): each fault counts as 4096 bytes, "
			    "also one that makes nothing resident",
			    strerror(-err));
	err = kernel_faults_open(&parts, ret);
	switch (err) {
	case 0:
		return 0;
	case -EACCES:
	case -EPERM:
		return log_error(err, "not allowed to open perf events for every CPU, which "
				      "--mode faults needs: " WHY_NOT_ROOT);
	case -ENOENT:
	case -ENOSYS:
		return log_error(err, "this kernel has no events for page faults, which --mode "
				      "faults needs: CONFIG_PERF_EVENTS; --mode heap needs none");
	case -EMFILE:
		return log_error(err, "cannot open three perf events for every CPU");
	default:
		return log_error(err, "cannot attach to the events of page faults (-v shows "
				      "what the kernel says)");
	}
}
