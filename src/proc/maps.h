/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* /proc/PID/maps. */
#ifndef HEAPTAP_PROC_MAPS_H
#define HEAPTAP_PROC_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct mapping {
	uint64_t start;
	uint64_t end;
	uint64_t offset; /* in the file, of start */
	uint64_t inode;	 /* 0: no file */
	unsigned int dev_major;
	unsigned int dev_minor;
	bool executable;
	bool deleted; /* the path had the " (deleted)" suffix, which is removed */
	char *path;   /* unescaped; "" for anonymous memory */
};

struct maps {
	struct mapping *entries; /* by address */
	size_t count;
};

/* Errors: -ESRCH if the process is gone, -EACCES, -ENOMEM, -EINVAL for a line not understood. */
int maps_read(pid_t pid, struct maps **ret);
int maps_parse(FILE *file, struct maps **ret);
void maps_free(struct maps *maps);
DEFINE_CLEANUP(maps, struct maps *, maps_free)

const struct mapping *maps_find(const struct maps *maps, uint64_t address);

/*
 * Opens the file a mapping maps: through /proc/PID/map_files, else through the process's root.
 * Returns a descriptor (O_RDONLY | O_CLOEXEC) or a negative errno, -ENOENT if by now the mapping or
 * the process is gone, or another file is mapped there.
 */
int maps_open_file(pid_t pid, const struct mapping *mapping);

#endif
