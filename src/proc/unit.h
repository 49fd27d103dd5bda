/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* systemd units as scopes, found by the directories that systemd makes for them. */
#ifndef HEAPTAP_PROC_UNIT_H
#define HEAPTAP_PROC_UNIT_H

#include "proc/cgroup_scope.h"

/*
 * The cgroup of a running unit. name is a full name (x.service, x.scope, x.slice, y@z.service), or
 * one without its type, which stands for a service or a scope. Characters that no unit name can
 * have are escaped as systemctl does. Looked for are units of the system's manager and of users'
 * managers; those of managers inside containers only if there is no other. Errors, all with their
 * words in *error: -ENOENT if no such unit runs, -ENOTUNIQ if several do (users with the same unit,
 * x.service beside x.scope), -EINVAL for what can be no name, -ENOMEM, those of cgroup_walk().
 */
int unit_find(const struct cgroup_mounts *mounts, const char *name, struct cgroup_scope **ret,
	      struct scope_error *error);

#endif
