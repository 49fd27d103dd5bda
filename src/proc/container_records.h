/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Containers as state files and cgroups tell of them, each piece by piece. */
#ifndef HEAPTAP_PROC_CONTAINER_RECORDS_H
#define HEAPTAP_PROC_CONTAINER_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "util/cleanup.h"

/* What is not known is NULL or 0. */
struct container_record {
	char *id; /* 64 hexadecimal digits, or a name of the user's for lxc, machines, runc, crun */
	char *name; /* without docker's "/" */
	char *pod;  /* Kubernetes: "NAMESPACE/POD" */
	const char *runtime;
	pid_t init_pid;			/* as the file says: it may be gone, or be another's */
	unsigned long long start_ticks; /* of that process; with the pid, its identity */
	char *cgroup;			/* a path in a hierarchy, or the directory of a cgroup */
	char *home;			/* the folder of its state files; for names used twice */
	bool sandbox; /* holds a pod's namespaces and runs nothing of the user's */
};

struct container_records {
	struct container_record *entries;
	size_t count;
	size_t capacity;
};

/*
 * Adds a record, or fills the gaps of one of the same container: of the same hexadecimal id; or of
 * the same name and process, or the same name in the same place of the same runtime. Takes the
 * strings over, also if it fails, which leaves NULL in them. Errors: -ENOMEM.
 */
int container_records_add(struct container_records *records, struct container_record *record);

/* Frees the entries; the struct itself may be used again. */
void container_records_fini(struct container_records *records);

/* Frees the strings. The struct itself may be used again. */
void container_record_clear(struct container_record *record);

#define _cleanup_container_record_  __attribute__((cleanup(container_record_clear)))
#define _cleanup_container_records_ __attribute__((cleanup(container_records_fini)))

#endif
