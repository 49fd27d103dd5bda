/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Containers as scopes, by the names and ids that users know. */
#ifndef HEAPTAP_PROC_CONTAINER_H
#define HEAPTAP_PROC_CONTAINER_H

#include "proc/cgroup_scope.h"
#include "proc/container_records.h"

struct container {
	char *id;   /* full */
	char *name; /* "" if it has none beside its id; "NAMESPACE/POD/NAME" in Kubernetes */
	const char *runtime;
	pid_t init_pid; /* in our PID namespace */
	struct cgroup_scope *scope;
};

/*
 * The running container that a user means: by its name, in Kubernetes also "POD", "POD/NAME" or
 * "NAMESPACE/POD/NAME", by its full id, or by the first characters of the id, 3 at least. A name
 * goes before an id that begins so. Stopped containers are left out where one that runs matches.
 * State files and /proc are read below the root folder of mounts.
 * Errors, all with their words in *error: -ENOENT if none is known, -ENOTUNIQ if several match,
 * -ESRCH if it is not running, -ENOTSUP if it has no cgroup of its own or none that our mounts
 * show, -ENOMEM, those of cgroup_walk().
 */
int container_find(const struct cgroup_mounts *mounts, const char *key, struct container **ret,
		   struct scope_error *error);
void container_free(struct container *container);
DEFINE_CLEANUP(container, struct container *, container_free)

/*
 * The length of the part of a path in the hierarchy of a mount that is the container's: by its id,
 * or as its state file says. 0 if it is not in there.
 */
size_t container_path_share(const struct cgroup_mount *mount, const struct container_record *record,
			    const char *path);

/* As in struct container, to be freed; NULL for a lack of memory. */
char *container_record_name(const struct container_record *record);

#endif
