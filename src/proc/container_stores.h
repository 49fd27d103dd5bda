/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the state files of container runtimes tell. No daemon is asked: the files are there also
 * when it is down, and need no protocol.
 */
#ifndef HEAPTAP_PROC_CONTAINER_STORES_H
#define HEAPTAP_PROC_CONTAINER_STORES_H

#include <stddef.h>

#include "proc/container_records.h"

/* One symbol per kind of file. */
#define CONTAINER_FILES                                                                            \
	X(DOCKER_CONFIG)                                                                           \
	X(STORAGE_LIST)                                                                            \
	X(STORAGE_SPEC)                                                                            \
	X(CRIO_STATE)                                                                              \
	X(PIDFILE)                                                                                 \
	X(TASK_SPEC)                                                                               \
	X(TASK_PID)                                                                                \
	X(NERDCTL_NAME)                                                                            \
	X(RUNC_STATE)                                                                              \
	X(CRUN_STATUS)                                                                             \
	X(MACHINE)                                                                                 \
	X(LXC_CONFIG)

enum container_file {
#define X(symbol) CONTAINER_FILE_##symbol,
	CONTAINER_FILES
#undef X
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
