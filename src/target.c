/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "proc/command.h"
#include "proc/process.h"
#include "util/log.h"
#include "util/root.h"

struct target {
	pid_t pid;
	int pidfd;
	char comm[17];
	char **argv; /* of a command, not owned */
	struct command command;
	struct command_files *files; /* of a command */
};

void target_free(struct target *target)
{
	if (!target)
		return;
	command_abandon(&target->command);
	command_files_free(target->files);
	if (target->pidfd >= 0)
		close(target->pidfd);
	free(target);
}
DEFINE_CLEANUP(target, struct target *, target_free)

/*
 * From 6.11 on x86-64, a return probe returns through a system call of its own; before 6.14
 * seccomp filters saw it, and one that allows only what it knows killed the process.
 */
static bool seccomp_kills_return_probes(void)
{
	unsigned int major, minor;
	struct utsname name;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2)
		return false;
	return major == 6 && minor >= 11 && minor < 14;
}

static int check_process(pid_t pid, bool force, struct process *process)
{
	int err;

	err = process_read(pid, process);
	if (err == -ESRCH)
		return log_error(0, "no process with PID %d: `ps -e` lists the running ones", pid);
	if (err)
		return log_error(err, "read /proc/%d", pid);
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
	if (process->seccomp_mode && seccomp_kills_return_probes() && !force)
		return log_error(
			0,
			"PID %d (%s) has a seccomp filter, and on this kernel (6.11 to 6.13) "
			"such a filter may kill the process at its first sample: use "
			"--force if the filter is known to allow the uretprobe system call",
			pid, process->comm);
	return 0;
}

static int open_process(struct target *target, pid_t pid, bool force)
{
	struct process process = {};
	int err;

	err = check_process(pid, force, &process);
	if (err)
		return err;
	target->pid = pid;
	memcpy(target->comm, process.comm, sizeof(target->comm));
	return 0;
}

static int open_command(struct target *target, char **argv)
{
	int err;

	err = command_find_files(argv[0], &target->files);
	switch (err) {
	case 0:
		break;
	case -ENOENT:
		return log_error(0,
				 "command '%s' not found: give its path, or a name that is in PATH",
				 argv[0]);
	case -ELIBACC:
		return log_error(
			0,
			"command '%s' is a script whose interpreter does not exist: see its "
			"first line",
			argv[0]);
	case -EACCES:
		return log_error(err, "command '%s' cannot be executed (chmod +x?)", argv[0]);
	case -ENOEXEC:
		return log_error(0,
				 "command '%s' is no x86-64 ELF program: heaptap can profile only "
				 "these",
				 argv[0]);
	default:
		return log_error(err, "find the files of command '%s'", argv[0]);
	}
	err = command_hold(argv, &target->command);
	if (err)
		return log_error(err, "start '%s'", argv[0]);
	target->argv = argv;
	target->pid = target->command.pid;
	snprintf(target->comm, sizeof(target->comm), "%.*s", (int)sizeof(target->comm) - 2,
		 strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0]);
	return 0;
}

int target_open(pid_t pid, char **command, bool force, struct target **ret)
{
	struct target *target CLEANUP(target) = calloc(1, sizeof(*target));
	int err;

	if (!target)
		return log_error(ENOMEM, "open the target");
	target->pidfd = -1;
	target->command.release_fd = -1;
	err = command ? open_command(target, command) : open_process(target, pid, force);
	if (err)
		return err;
	target->pidfd = syscall(SYS_pidfd_open, target->pid, 0);
	if (target->pidfd < 0)
		return log_error(errno, "open PID %d (%s)", target->pid, target->comm);
	*ret = take_ptr(target);
	return 0;
}

int target_attach(struct target *target, struct allocators *allocators, bool wait)
{
	int err;

	if (target->files)
		err = allocators_add_files(allocators, target->files->paths, target->files->count);
	else
		err = allocators_add_process(allocators, target->pid);
	if (err == -ESRCH)
		return log_error(0, "PID %d (%s) exited before the probes were placed", target->pid,
				 target->comm);
	if (err || allocators_count(allocators))
		return err;
	if (wait && allocators_may_come(allocators)) {
		log_warning("no allocator found in %d (%s) yet: waiting for it to load one",
			    target->pid, target->comm);
		return 0;
	}
	return allocators_report_none(allocators, target->pid, target->comm);
}

int target_start(struct target *target)
{
	int err;

	if (!target->argv)
		return 0;
	err = command_release(&target->command);
	return err ? log_error(err, "execute '%s'", target->argv[0]) : 0;
}

pid_t target_pid(const struct target *target)
{
	return target->pid;
}

const char *target_comm(const struct target *target)
{
	return target->comm;
}

int target_variable(void *arg, const char *name, char *value, size_t size)
{
	const struct target *target = arg;
	const char *own = target->argv ? getenv(name) : NULL;

	if (!target->argv)
		return process_variable(target->pid, name, value, size);
	if (!own)
		return -ENOENT;
	snprintf(value, size, "%s", own);
	return 0;
}

int target_open_root(const struct target *target)
{
	char path[64];

	if (target->argv)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/root", target->pid);
	return root_open(path);
}

int target_fd(const struct target *target)
{
	return target->pidfd;
}

void target_report_end(struct target *target)
{
	int status;
	pid_t pid;

	if (!target->argv)
		return;
	do
		pid = waitpid(target->pid, &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		log_info("%s (PID %d) goes on running", target->argv[0], target->pid);
	else if (pid == target->pid && WIFSIGNALED(status))
		log_info("%s was killed by signal %d (%s)", target->argv[0], WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (pid == target->pid)
		log_info("%s exited with status %d", target->argv[0], WEXITSTATUS(status));
}
