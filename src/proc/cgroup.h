/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Control groups: where they are mounted, and which of them a process is in.
 *
 * Words: a hierarchy is one tree of cgroups, v2's or one of several v1 trees, each with its
 * controllers. A path in a hierarchy is what /proc/PID/cgroup shows, "/system.slice/x.service"; a
 * directory is where we find it, "/sys/fs/cgroup/system.slice/x.service".
 *
 * A root folder is "" on a running system. Else it is a folder that is taken for "/", for tests.
 */
#ifndef HEAPTAP_PROC_CGROUP_H
#define HEAPTAP_PROC_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "util/cleanup.h"

enum cgroup_version { CGROUP_V1 = 1, CGROUP_V2 = 2 };

struct cgroup_mount {
	enum cgroup_version version;
	char *controllers; /* v1: "cpu,cpuacct" or "name=systemd"; v2: "" */
	char *point;	   /* with the root folder in front */
	char *root;	   /* path in the hierarchy of what is mounted, mostly "/" */
};

/*
 * Those that something else is mounted on are left out. The best for scopes comes first: v2, then
 * v1 by controller: memory, pids, cpu, others, and last the named ones, which have none.
 */
struct cgroup_mounts {
	struct cgroup_mount *entries;
	size_t count;
	char *root_folder; /* resolved */
};

/*
 * Reads /proc/self/mountinfo below a root folder. No mount of this kind is no error: count is 0.
 * Errors: -errno of the file, -ENOMEM.
 */
int cgroup_mounts_read(const char *root_folder, struct cgroup_mounts **ret);
/* The same from the file's text. Lines that are not understood are passed over. */
int cgroup_mounts_parse(const char *text, const char *root_folder, struct cgroup_mounts **ret);
void cgroup_mounts_free(struct cgroup_mounts *mounts);
DEFINE_CLEANUP(cgroup_mounts, struct cgroup_mounts *, cgroup_mounts_free)

/* The directory of a path in a mount's hierarchy; the caller frees it. NULL if the mount does not
 * show that path, or for a lack of memory. */
char *cgroup_mount_directory(const struct cgroup_mount *mount, const char *path);

/* /proc/PID/cgroup: a process's path in every hierarchy. */
struct process_cgroup {
	enum cgroup_version version;
	char *controllers; /* as in struct cgroup_mount */
	char *path;	   /* without the mark of a removed cgroup */
};

struct process_cgroups {
	struct process_cgroup *entries;
	size_t count;
};

/* Errors: -ESRCH if the process is gone, -EACCES, -EINVAL for a line not understood, -ENOMEM. */
int process_cgroups_read(const char *root_folder, pid_t pid, struct process_cgroups **ret);
int process_cgroups_parse(const char *text, struct process_cgroups **ret);
void process_cgroups_free(struct process_cgroups *cgroups);
DEFINE_CLEANUP(process_cgroups, struct process_cgroups *, process_cgroups_free)

/* The path in the hierarchy of a mount; NULL if the process is in none of that hierarchy. */
const char *process_cgroups_path(const struct process_cgroups *cgroups,
				 const struct cgroup_mount *mount);
/* The same by version and first controller ("memory", "name=systemd"; "" for v2). */
const char *process_cgroups_find(const struct process_cgroups *cgroups, enum cgroup_version version,
				 const char *controller);

/* Whether a path is the other one or below it. */
bool cgroup_path_is_below(const char *path, const char *top);

#endif
