/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A cgroup and all below it, as a set of processes. */
#ifndef HEAPTAP_PROC_CGROUP_SCOPE_H
#define HEAPTAP_PROC_CGROUP_SCOPE_H

#include <stdint.h>

#include "proc/cgroup.h"
#include "proc/scope_error.h"

struct cgroup_scope {
	char *directory;
	char *path; /* in its hierarchy */
	enum cgroup_version version;
	/*
	 * v1: the first controller of the hierarchy as the kernel spells it ("memory", "blkio"), or
	 * "name=systemd" for one without controllers; v2: "".
	 */
	char controller[64];
	/*
	 * The kernfs id of the directory, which bpf_get_current_cgroup_id() and kn->id show: its
	 * inode number. That holds on 64-bit kernels from 5.5 on (commit 40430452fd5d; before, and
	 * on 32 bits, a generation is part of the id). It is unique within its hierarchy only, and
	 * is not used again for a later directory of that name.
	 */
	uint64_t id;
};

/*
 * The cgroup that a user names: a directory below a cgroup mount, or a path from a hierarchy's root
 * on ("/system.slice/x.service", with or without the first "/"). A path is looked up in v2 first,
 * then in the v1 hierarchies in the order of mounts; the first where it holds a process is taken,
 * else the first where it exists.
 * Errors, all with their words in *error: -ENOENT, -ENOTDIR and the like for what is no cgroup,
 * -EINVAL for a path that cannot be one, -ENOMEM.
 */
int cgroup_scope_find(const struct cgroup_mounts *mounts, const char *path,
		      struct cgroup_scope **ret, struct scope_error *error);
/*
 * The cgroup at a path of one hierarchy. Errors: -ENOENT, -ENOTDIR for a directory that is no
 * cgroup, -EXDEV if the mount does not show the path, -ENOMEM, other -errno of stat().
 */
int cgroup_scope_open(const struct cgroup_mount *mount, const char *path,
		      struct cgroup_scope **ret);
void cgroup_scope_free(struct cgroup_scope *scope);
DEFINE_CLEANUP(cgroup_scope, struct cgroup_scope *, cgroup_scope_free)

/*
 * Whether a process is in the scope, by the cgroup of its first thread: only threaded cgroups can
 * have others elsewhere. Errors: those of process_cgroups_read().
 */
int cgroup_scope_has_pid(const struct cgroup_scope *scope, const char *root_folder, pid_t pid,
			 bool *ret);

struct pid_list {
	pid_t *pids; /* sorted, each once */
	size_t count;
};

/*
 * All processes in a scope, as far as our PID namespace shows them. Processes that are started
 * meanwhile may be missing. In threaded cgroups a process counts if one of its threads is in the
 * scope. A scope that was removed is empty. Errors: those of cgroup_walk(), -E2BIG for more PIDs
 * than Linux has (4194304).
 */
int cgroup_scope_pids(const struct cgroup_scope *scope, const char *root_folder,
		      struct pid_list **ret);
void pid_list_free(struct pid_list *list);
DEFINE_CLEANUP(pid_list, struct pid_list *, pid_list_free)

#endif
