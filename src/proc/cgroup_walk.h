/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walking a tree of cgroups while it changes. */
#ifndef HEAPTAP_PROC_CGROUP_WALK_H
#define HEAPTAP_PROC_CGROUP_WALK_H

#include <stdbool.h>

/*
 * cgroup.procs of all processes that Linux can have (PID_MAX_LIMIT), 8 bytes a line. v1 lists a
 * process once per thread that moved, but there is no host where that matters.
 */
#define CGROUP_PIDS_MAX	       (4u << 20)
#define CGROUP_PROCS_MAX_BYTES (CGROUP_PIDS_MAX * 8u)

/* What a visitor answers beside 0 and errors: do not go below this directory. */
#define CGROUP_WALK_SKIP 1

/*
 * A directory of the tree. path is relative to where the walk began: "" for that directory itself,
 * then "system.slice/x.service". fd is the open directory. A negative errno ends the walk.
 */
typedef int cgroup_visit(void *arg, const char *path, int fd);

/*
 * Visits a directory and all below it, parents first, siblings in no order. What vanishes meanwhile
 * is passed over, the first directory included. Errors: those of the visitor, -E2BIG for more than
 * 200000 directories (a host of 1000 containers has some 5000), -errno of an open that fails
 * otherwise, -ENOMEM.
 */
int cgroup_walk(const char *directory, cgroup_visit *visit, void *arg);

/* Whether there is a process below a directory. False also if that cannot be read. */
bool cgroup_is_populated(const char *directory);

#endif
