/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the state files of container runtimes tell. No daemon is asked: the files are there also
 * when it is down, and need no protocol.
 */
#ifndef HEAPTAP_PROC_CONTAINER_STORES_H
#define HEAPTAP_PROC_CONTAINER_STORES_H

#include <stddef.h>

#include "proc/container_records.h"

/* The kinds of state files; container_stores.c tells what each holds. */
enum container_file {
	CONTAINER_FILE_DOCKER_CONFIG,
	CONTAINER_FILE_STORAGE_LIST,
	CONTAINER_FILE_STORAGE_SPEC,
	CONTAINER_FILE_CRIO_STATE,
	CONTAINER_FILE_PIDFILE,
	CONTAINER_FILE_TASK_SPEC,
	CONTAINER_FILE_TASK_PID,
	CONTAINER_FILE_NERDCTL_NAME,
	CONTAINER_FILE_RUNC_STATE,
	CONTAINER_FILE_CRUN_STATUS,
	CONTAINER_FILE_MACHINE,
	CONTAINER_FILE_LXC_CONFIG,
	CONTAINER_FILE_COUNT
};

/*
 * Adds what all state files below a root folder tell; files that are missing, unreadable or not
 * understood are passed over. Errors: -ENOMEM.
 */
int container_records_load(const char *root_folder, struct container_records *records);

/*
 * Adds what one file tells. path is where it was found, whose folders can be a container's id and
 * namespace. Errors: -EINVAL for a file not understood, -ENOMEM.
 */
int container_records_parse(enum container_file file, const char *path, const char *text,
			    size_t bytes, struct container_records *records);

#endif
