/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target of a session: a running process, or a command that is held until the probes are in
 * place. Part of the session: prints its errors, with the next step.
 */
#ifndef HEAPTAP_TARGET_H
#define HEAPTAP_TARGET_H

#include <stdbool.h>
#include <sys/types.h>

#include "allocators.h"
#include "cgroup_names.h"
#include "scope_links.h"

struct target;

struct target_options {
	pid_t *pids; /* running processes, or none; not owned */
	size_t pid_count;
	char **command;	       /* to be started, or NULL */
	bool all;	       /* the whole machine */
	const char *cgroup;    /* a path, or NULL; and so below */
	const char *unit;      /* of systemd */
	const char *container; /* name, id or the beginning of one */
	bool force;	       /* also where a seccomp filter may kill the target */
};

/*
 * Opens the processes, or holds the command. Refuses what cannot be profiled: kernel threads,
 * zombies, threads, heaptap itself and, unless forced, a process that its seccomp filter may kill.
 * Of all processes, those are left out.
 */
int target_open(const struct target_options *options, struct target **ret);
void target_free(struct target *target);
DEFINE_CLEANUP(target, struct target *, target_free)

/* Which processes come into it by themselves. Prints its errors. */
int target_scope(const struct target *target, bool follow, struct kernel_scope *ret);

/*
 * Takes the processes into the scope, also those that have come since the target was opened. To be
 * called when the kernel side tells of forks: so nobody is missed in between, unless its parent has
 * come and gone as well. follow: children of named processes, too.
 */
int target_enter(struct target *target, struct kernel *kernel, bool follow);

/*
 * Places the probes on the allocators in the target's files. An error if there are none, unless
 * wait is set and it may still load one, or no probes are wanted.
 */
int target_attach(struct target *target, const struct kernel *kernel, struct allocators *allocators,
		  bool wait);
/* Lets a held command go. */
int target_start(struct target *target);
/* Whether it is one process, and stays that. */
bool target_is_single(const struct target *target);
/* Processes that were there when it was opened, the held command included. */
size_t target_count(const struct target *target);
/* The PIDs of all that are known now, to be freed; NULL for a lack of memory. */
pid_t *target_pids(const struct target *target, size_t *ret_count);
/* Whether there is one process, and none comes into the scope by itself. */
bool target_stays_one(const struct target *target, bool follow);
/* Whom the links are to reach. always: processes that come, from their first instruction on. */
enum scope_reach target_reach(const struct target *target, enum attach_mode mode, bool follow,
			      bool always);
/* "12 (redis-server)", "3 processes", "all processes", "cgroup /x". */
const char *target_words(const struct target *target);

/* Where the processes of the target are. Owned by the target. */
struct cgroup_names *target_cgroups(const struct target *target);
/* What the container is called that is the target, or NULL. */
const char *target_container(const struct target *target);
/* The only process, or the first; 0 if there is none yet. */
pid_t target_pid(const struct target *target);
/* Those that are known; 0 behind the last. A held command is one, too. */
pid_t target_member(const struct target *target, size_t index);
/* The files that a held command will map, as far as is known, and how many; NULL for others. */
char *const *target_command_files(const struct target *target, size_t *count);
/* An environment variable of its; arg is the target. For runtimes_new(). */
int target_variable(void *arg, const char *name, char *value, size_t size);
/* The root of a running process, for root_open_file(), to be closed; -1 for a command. */
int target_open_root(const struct target *target);
/* Readable when the only process has exited; -1 if there are several. */
int target_fd(const struct target *target);
/* Says how a command ended, or that it goes on. */
void target_report_end(struct target *target);

#endif
