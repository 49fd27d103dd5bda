/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cgroups that processes are in, by the kernel's numbers: their paths, and the containers that
 * they belong to. Kept for the whole session, as a cgroup may be gone when its last samples are
 * written.
 */
#ifndef HEAPTAP_CGROUP_NAMES_H
#define HEAPTAP_CGROUP_NAMES_H

#include <stdint.h>

#include "proc/cgroup_scope.h"

struct cgroup_names;

/* Strings are valid as long as the names. Both are "(other)" of a cgroup that is one too many. */
struct cgroup_name {
	const char *path;      /* in its hierarchy, "" if it is not known */
	const char *container; /* its name, else the beginning of its id, or "" */
};

/*
 * root: the folder that /proc is in, "" for this machine's. In the hierarchy of scope; where scope
 * is NULL, in the first (v2, then memory, pids and others of v1) in which a process is not in the
 * root: pid, or we ourselves if it is 0. Returns 0 or a negative errno.
 */
int cgroup_names_new(const char *root, const struct cgroup_scope *scope, pid_t pid,
		     struct cgroup_names **ret);
void cgroup_names_free(struct cgroup_names *names);
DEFINE_CLEANUP(cgroup_names, struct cgroup_names *, cgroup_names_free)

/* The first controller of the hierarchy; "" for v2, NULL if there is none at all. */
const char *cgroup_names_controller(const struct cgroup_names *names);

/*
 * The number in kernfs of the cgroup that a process is in; 0 if it is gone. Of one that has ended
 * and waits for its parent, v1 says that it is in the root.
 */
uint64_t cgroup_names_number(const struct cgroup_names *names, pid_t pid);

/*
 * The cgroup of a number, which pid was seen in. Never fails: what cannot be found has no path.
 */
struct cgroup_name cgroup_names_find(struct cgroup_names *names, uint64_t id, pid_t pid);

/* How often that was "(other)". */
size_t cgroup_names_left_out(const struct cgroup_names *names);

#endif
