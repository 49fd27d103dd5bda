/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The processes that a target has: those that are named, and those that are found in /proc, in a
 * cgroup or on the kernel side, as often as is looked. Part of the session: prints its errors.
 */
#ifndef HEAPTAP_MEMBERS_H
#define HEAPTAP_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"
#include "proc/cgroup_scope.h"

struct member {
	pid_t pid;
	char comm[17];
};

struct members {
	struct member *list; /* in the order in which they were found */
	size_t count;
	pid_t *seen; /* ascending: theirs, and of those that were left out */
	size_t seen_count;
	bool force; /* also where a seccomp filter may kill it */
};

void members_fini(struct members *members);

/* Adds one, unless it is there. Returns 0 or -ENOMEM. */
int members_add(struct members *members, pid_t pid, const char *comm);

/*
 * Adds one that the user has named. An error if it cannot be profiled: kernel threads, zombies,
 * threads, heaptap itself and, unless forced, a process that its seccomp filter may kill.
 */
int members_add_named(struct members *members, pid_t pid);

/*
 * Add those that are there now and can be profiled: all; those in a cgroup; children of members
 * that were started since (CLOCK_BOOTTIME, to a clock tick). Return 0 or a negative errno.
 */
int members_add_all(struct members *members);
int members_add_cgroup(struct members *members, const struct cgroup_scope *cgroup);
int members_add_children(struct members *members, uint64_t since_ns);

/* Adds those that the kernel side has in the scope. Returns 0 or -ENOMEM. */
int members_add_entered(struct members *members, const struct kernel *kernel);

#endif
