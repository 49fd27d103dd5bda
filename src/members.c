/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "members.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "proc/process.h"
#include "util/log.h"

/* A process's start is known to a clock tick, rounded down: USER_HZ is 100. */
#define TICK_NS 10000000ull

void members_fini(struct members *members)
{
	free(members->list);
	free(members->seen);
	*members = (struct members){};
}

/* Where a PID is among those seen, or would be. */
static size_t place_of(const struct members *members, pid_t pid)
{
	size_t low = 0, high = members->seen_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (members->seen[middle] < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_seen(const struct members *members, pid_t pid)
{
	size_t at = place_of(members, pid);

	return at < members->seen_count && members->seen[at] == pid;
}

static int note_seen(struct members *members, pid_t pid)
{
	size_t at = place_of(members, pid);
	pid_t *seen = reallocarray(members->seen, members->seen_count + 1, sizeof(*seen));

	if (!seen)
		return log_error(ENOMEM, "cannot open the target");
	members->seen = seen;
	memmove(&seen[at + 1], &seen[at], (members->seen_count - at) * sizeof(*seen));
	seen[at] = pid;
	members->seen_count++;
	return 0;
}

int members_add(struct members *members, pid_t pid, const char *comm)
{
	struct member *list;
	int err;

	if (is_seen(members, pid))
		return 0;
	list = reallocarray(members->list, members->count + 1, sizeof(*list));
	if (!list)
		return log_error(ENOMEM, "cannot open the target");
	members->list = list;
	err = note_seen(members, pid);
	if (err)
		return err;
	list[members->count].pid = pid;
	snprintf(list[members->count++].comm, sizeof(list->comm), "%s", comm);
	return 0;
}

static int check_process(pid_t pid, bool force, struct process *process)
{
	int err;

	err = process_read(pid, process);
	if (err == -ESRCH)
		return log_error(0, "no process with PID %d: `ps -e` lists the running ones", pid);
	if (err)
		return log_error(err, "cannot read /proc/%d (is /proc mounted?)", pid);
	if (process->thread)
		return log_error(0,
				 "%d (%s) is a thread of process %d: use -p %d, which takes in all "
				 "its threads",
				 pid, process->comm, process->tgid, process->tgid);
	if (process->kernel_thread)
		return log_error(
			0,
			"PID %d (%s) is a kernel thread and has no heap: give the PID of a "
			"user process",
			pid, process->comm);
	if (process->zombie)
		return log_error(0,
				 "PID %d (%s) is a zombie: it has exited and waits for its parent; "
				 "give the PID of a running process",
				 pid, process->comm);
	if (pid == getpid())
		return log_error(0, "PID %d is heaptap itself: give the PID of another process",
				 pid);
	if (process->seccomp_mode && process_seccomp_kills_return_probes() && !force)
		return log_error(
			0,
			"PID %d (%s) has a seccomp filter, and on this kernel (6.11 to 6.13) "
			"such a filter may kill the process at its first sample: use "
			"--force if the filter is known to allow the uretprobe system call",
			pid, process->comm);
	return 0;
}

int members_add_named(struct members *members, pid_t pid)
{
	struct process process = {};
	int err = check_process(pid, members->force, &process);

	return err ? err : members_add(members, pid, process.comm);
}

/* One of many: what cannot be profiled is no error here. */
static int add_found(struct members *members, pid_t pid)
{
	struct process process = {};

	if (pid == getpid() || is_seen(members, pid) || process_read(pid, &process) ||
	    process.thread || process.kernel_thread || process.zombie)
		return 0;
	if (process.seccomp_mode && process_seccomp_kills_return_probes() && !members->force) {
		log_warning("PID %d (%s) is left out: its seccomp filter may kill it (--force "
			    "takes it in)",
			    pid, process.comm);
		return note_seen(members, pid);
	}
	return members_add(members, pid, process.comm);
}

/* since_ns: only children of members, see members_add_children(); 0: all. */
static int add_from_proc(struct members *members, uint64_t since_ns)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int err = 0;

	if (!proc)
		return log_error(errno, "cannot read /proc (is it mounted?)");
	while (!err && (entry = readdir(proc))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		struct process_cpu cpu = {};

		if (pid <= 0)
			continue;
		if (since_ns && (process_cpu(pid, &cpu) || cpu.start_ns + TICK_NS <= since_ns ||
				 !is_seen(members, cpu.parent)))
			continue;
		err = add_found(members, pid);
	}
	closedir(proc);
	return err;
}

int members_add_all(struct members *members)
{
	return add_from_proc(members, 0);
}

int members_add_children(struct members *members, uint64_t since_ns)
{
	return add_from_proc(members, since_ns);
}

int members_add_cgroup(struct members *members, const struct cgroup_scope *cgroup)
{
	struct pid_list *list CLEANUP(pid_list) = NULL;
	int err = cgroup_scope_pids(cgroup, "", &list);

	if (err)
		return log_error(err, "cannot list the processes of cgroup %s (is it still there?)",
				 cgroup->path);
	for (size_t i = 0; i < list->count && !err; i++)
		err = add_found(members, list->pids[i]);
	return err;
}

static int add_entered(void *arg, __u32 serial, const struct process_info *info)
{
	char comm[PROCESS_COMM_SIZE + 1];

	if (info->gone)
		return 0;
	snprintf(comm, sizeof(comm), "%.*s", PROCESS_COMM_SIZE, info->comm);
	return members_add(arg, info->tgid, comm);
}

int members_add_entered(struct members *members, const struct kernel *kernel)
{
	return kernel_read_processes(kernel, add_entered, members);
}
