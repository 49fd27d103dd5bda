/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "members.h"
#include "proc/cgroup_scope.h"
#include "proc/command.h"
#include "proc/container.h"
#include "proc/process.h"
#include "proc/unit.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/printable.h"
#include "util/root.h"

struct target {
	struct members members; /* the first ones were there when it was opened */
	size_t first_count;	/* so many */
	uint64_t opened_ns;	/* CLOCK_BOOTTIME */
	bool all;
	struct cgroup_scope *cgroup; /* or NULL */
	struct cgroup_names *cgroups;
	char container[65]; /* its name, or "" */
	int pidfd;
	char words[256];
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
	members_fini(&target->members);
	cgroup_scope_free(target->cgroup);
	cgroup_names_free(target->cgroups);
	if (target->pidfd >= 0)
		close(target->pidfd);
	free(target);
}

static int open_command(struct target *target, char **argv)
{
	char comm[17];
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
		return log_error(err, "cannot find the files of command '%s'", argv[0]);
	}
	err = command_hold(argv, &target->command);
	if (err)
		return log_error(err, "cannot start '%s'", argv[0]);
	target->argv = argv;
	snprintf(comm, sizeof(comm), "%.*s", (int)sizeof(comm) - 2,
		 strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0]);
	return members_add(&target->members, target->command.pid, comm);
}

static int open_all(struct target *target)
{
	if (process_seccomp_kills_return_probes() && !target->members.force)
		return log_error(0, "on this kernel (6.11 to 6.13) probes on every process may "
				    "kill those that have a seccomp filter: use --container, "
				    "--unit or -p, or --force");
	return members_add_all(&target->members);
}

static int find_container(struct target *target, const struct cgroup_mounts *mounts,
			  const char *key, struct scope_error *error)
{
	struct container *container CLEANUP(container) = NULL;
	int err = container_find(mounts, key, &container, error);

	if (err)
		return err;
	snprintf(target->container, sizeof(target->container), "%.64s",
		 *container->name ? container->name : container->id);
	printable(target->container);
	target->cgroup = take_ptr(container->scope);
	return 0;
}

static int open_cgroup(struct target *target, const struct target_options *options)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct scope_error error = {};
	int err = cgroup_mounts_read("", &mounts);

	if (err)
		return log_error(err, "cannot read the mounts of cgroups (/proc/self/mountinfo)");
	if (options->cgroup)
		err = cgroup_scope_find(mounts, options->cgroup, &target->cgroup, &error);
	else if (options->unit)
		err = unit_find(mounts, options->unit, &target->cgroup, &error);
	else
		err = find_container(target, mounts, options->container, &error);
	/* There may be none in it yet. */
	return err ? log_error(0, "%s", error.text)
		   : members_add_cgroup(&target->members, target->cgroup);
}

static void find_words(struct target *target)
{
	if (target->all)
		snprintf(target->words, sizeof(target->words), "all processes");
	else if (*target->container)
		snprintf(target->words, sizeof(target->words), "container %s", target->container);
	else if (target->cgroup)
		snprintf(target->words, sizeof(target->words), "cgroup %.200s",
			 target->cgroup->path);
	else if (target->first_count == 1)
		snprintf(target->words, sizeof(target->words), "%d (%s)",
			 target->members.list[0].pid, target->members.list[0].comm);
	else
		snprintf(target->words, sizeof(target->words), "%zu processes",
			 target->first_count);
	printable(target->words);
}

int target_open(const struct target_options *options, struct target **ret)
{
	struct target *target CLEANUP(target) = calloc(1, sizeof(*target));
	int err = 0;

	if (!target)
		return log_error(ENOMEM, "cannot open the target");
	target->pidfd = -1;
	target->command.release_fd = -1;
	target->opened_ns = clock_ns(CLOCK_BOOTTIME);
	target->all = options->all;
	target->members.force = options->force;
	if (options->command)
		err = open_command(target, options->command);
	else if (options->all)
		err = open_all(target);
	else if (options->cgroup || options->unit || options->container)
		err = open_cgroup(target, options);
	for (size_t i = 0; i < options->pid_count && !err; i++)
		err = members_add_named(&target->members, options->pids[i]);
	if (err)
		return err;
	target->first_count = target->members.count;
	err = cgroup_names_new("", target->cgroup, target->all ? 0 : target_pid(target),
			       &target->cgroups);
	if (err)
		return log_error(err, "cannot read the mounts of cgroups (/proc/self/mountinfo)");
	find_words(target);
	if (target_is_single(target)) {
		target->pidfd = syscall(SYS_pidfd_open, target_pid(target), 0);
		if (target->pidfd < 0)
			return log_error(errno, "cannot open PID %s", target->words);
	}
	*ret = take_ptr(target);
	return 0;
}

int target_scope(const struct target *target, bool follow, struct kernel_scope *ret)
{
	const char *controller = cgroup_names_controller(target->cgroups);
	const struct cgroup_scope *cgroup = target->cgroup;
	struct kernel_scope scope = {
		.kind = target->all ? SCOPE_ALL
			: cgroup    ? SCOPE_CGROUP
				    : SCOPE_PROCESSES,
		.follow = follow,
		.cgroup_subsys = -1,
	};

	if (cgroup)
		scope.cgroup_id = cgroup->id;
	if (controller && *controller) {
		scope.cgroup_subsys = kernel_cgroup_subsys(controller);
		if (scope.cgroup_subsys < 0 && cgroup)
			return log_error(0,
					 "the cgroup hierarchy '%s' has no controller by which the "
					 "kernel side could tell its processes: give the directory "
					 "in another hierarchy, such as memory or pids",
					 cgroup->controller);
	}
	*ret = scope;
	return 0;
}

/* Of several, those that are gone by now are passed over, unless all are. */
static int attach_members(struct target *target, struct allocators *allocators)
{
	bool any = target->all || target->cgroup;

	for (size_t i = 0; i < target->members.count; i++) {
		const struct member *member = &target->members.list[i];
		int err = allocators_add_process(allocators, member->pid);

		/* Children may come and go. */
		if (err && target_is_single(target) && i == 0)
			return err == -EACCES || err == -EPERM
				       ? log_error(
						 err,
						 "cannot read /proc/%d/maps (`heaptap doctor` says "
						 "which rights are missing)",
						 member->pid)
				       : err;
		if (err == -ENOMEM)
			return err;
		if (err && err != -ESRCH)
			log_verbose("PID %d (%s) cannot be looked at (%s)", member->pid,
				    member->comm, strerror(-err));
		any |= err != -ESRCH;
	}
	return any ? 0 : -ESRCH;
}

int target_attach(struct target *target, const struct kernel *kernel, struct allocators *allocators,
		  bool wait)
{
	int err = 0;

	if (target->files)
		err = allocators_add_files(allocators, target->files->paths, target->files->count);
	else
		err = members_add_entered(&target->members, kernel);
	if (!err && !target->files)
		err = attach_members(target, allocators);
	if (err == -ESRCH)
		return log_error(0, "%s%s exited before the probes were placed",
				 target_is_single(target) ? "PID " : "", target->words);
	if (err || !allocators_are_wanted(allocators) || allocators_count(allocators))
		return err;
	if (wait && (target->all || target->cgroup || allocators_may_come(allocators))) {
		log_warning("no allocator found in %s yet: waiting for one to be loaded",
			    target->words);
		return 0;
	}
	return allocators_report_none(allocators, target->words);
}

/* With all its threads; it may wait for its parent. */
static bool has_exited(pid_t pid)
{
	struct pollfd process = {.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	bool exited = process.fd < 0 ? errno == ESRCH : poll(&process, 1, 0) > 0;

	if (process.fd >= 0)
		close(process.fd);
	return exited;
}

/*
 * Takes those in from *next on, and moves it on. *ret_missed: whether there was one that the kernel
 * side had not taken in by itself. -E2BIG: there is no room for more.
 */
static int enter_members(const struct target *target, struct kernel *kernel, size_t *next,
			 bool *ret_missed)
{
	*ret_missed = false;
	for (; *next < target->members.count; ++*next) {
		const struct member *member = &target->members.list[*next];
		int err;

		if (kernel_has_process(kernel, member->pid) || has_exited(member->pid))
			continue;
		err = kernel_add_process(kernel, member->pid, member->comm,
					 cgroup_names_number(target->cgroups, member->pid),
					 target->argv);
		if (err)
			return err == -E2BIG ? err
					     : log_error(err, "cannot put PID %d into the scope",
							 member->pid);
		/* Its exit may have been missed. */
		if (has_exited(member->pid))
			kernel_drop_process(kernel, member->pid);
		else
			*ret_missed = true;
	}
	return 0;
}

/* Those that have come since the target was opened. */
static int list_again(struct target *target, bool follow)
{
	if (target->all)
		return members_add_all(&target->members);
	if (target->cgroup)
		return members_add_cgroup(&target->members, target->cgroup);
	if (follow && !target->argv)
		return members_add_children(&target->members, target->opened_ns);
	return 0;
}

int target_enter(struct target *target, struct kernel *kernel, bool follow)
{
	size_t next = 0;
	bool missed;
	int err = enter_members(target, kernel, &next, &missed);

	do {
		if (!err)
			err = list_again(target, follow);
		if (!err)
			err = enter_members(target, kernel, &next, &missed);
		/* Who was missed may have forked before it was taken in. */
	} while (!err && missed);
	if (err != -E2BIG)
		return err;
	log_warning("more than the %zu processes that --max-processes allows: the others are not "
		    "counted; raise it",
		    kernel_process_count(kernel));
	return 0;
}

int target_start(struct target *target)
{
	int err;

	if (!target->argv)
		return 0;
	err = command_release(&target->command);
	return err ? log_error(err, "cannot execute '%s' (does it run without heaptap?)",
			       target->argv[0])
		   : 0;
}

bool target_is_single(const struct target *target)
{
	return target->first_count == 1 && !target->all && !target->cgroup;
}

size_t target_count(const struct target *target)
{
	return target->first_count;
}

pid_t *target_pids(const struct target *target, size_t *ret_count)
{
	pid_t *pids = calloc(target->members.count + 1, sizeof(*pids));

	for (size_t i = 0; pids && i < target->members.count; i++)
		pids[i] = target->members.list[i].pid;
	*ret_count = target->members.count;
	return pids;
}

static bool grows(const struct target *target, bool follow)
{
	return follow || target->all || target->cgroup;
}

bool target_stays_one(const struct target *target, bool follow)
{
	return target_is_single(target) && !grows(target, follow);
}

enum scope_reach target_reach(const struct target *target, enum attach_mode mode, bool follow,
			      bool always)
{
	if (target->all)
		return REACH_ALL;
	if (!grows(target, follow))
		return target->first_count <= scope_links_max(mode) ? REACH_EACH : REACH_ALL;
	/* With links to everybody, also those return through them that it may kill. */
	if (mode != ATTACH_SESSION && !target->members.force &&
	    process_seccomp_kills_return_probes())
		return REACH_EACH;
	return always ? REACH_ALL : REACH_BY_CALLS;
}

const char *target_words(const struct target *target)
{
	return target->words;
}

struct cgroup_names *target_cgroups(const struct target *target)
{
	return target->cgroups;
}

const char *target_container(const struct target *target)
{
	return *target->container ? target->container : NULL;
}

pid_t target_pid(const struct target *target)
{
	return target_member(target, 0);
}

pid_t target_member(const struct target *target, size_t index)
{
	return index < target->members.count ? target->members.list[index].pid : 0;
}

char *const *target_command_files(const struct target *target, size_t *count)
{
	*count = target->files ? target->files->count : 0;
	return target->files ? target->files->paths : NULL;
}

int target_variable(void *arg, const char *name, char *value, size_t size)
{
	const struct target *target = arg;
	const char *own = target->argv ? getenv(name) : NULL;

	if (!target->argv)
		return process_variable(target_pid(target), name, value, size);
	if (!own)
		return -ENOENT;
	snprintf(value, size, "%s", own);
	return 0;
}

int target_open_root(const struct target *target)
{
	char path[64];

	if (target->argv || !target->members.count)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/root", target_pid(target));
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
		pid = waitpid(target_pid(target), &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		log_info("%s (PID %d) goes on running", target->argv[0], target_pid(target));
	else if (pid == target_pid(target) && WIFSIGNALED(status))
		log_info("%s was killed by signal %d (%s)", target->argv[0], WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (pid == target_pid(target))
		log_info("%s exited with status %d", target->argv[0], WEXITSTATUS(status));
}
