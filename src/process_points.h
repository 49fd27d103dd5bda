/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The files that a process maps as code, and the probe points in them, without the kernel's help:
 * what a recording would find, for those who only want to know. Prints nothing.
 */
#ifndef HEAPTAP_PROCESS_POINTS_H
#define HEAPTAP_PROCESS_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "elf/image.h"
#include "probe/locate.h"
#include "probe/points.h"
#include "probe/runtimes.h"
#include "proc/maps.h"

struct process_file {
	struct image *image;
	uint64_t bias;
	uint64_t start; /* of its first mapping; UINT64_MAX: the program */
};

struct process_points_options {
	const char *symbol_prefix; /* or NULL */
	const char *const *signature_files;
	size_t signature_file_count;
	const char *const *debug_dirs;
	size_t debug_dir_count;
	bool plain_entries;
};

struct process_points {
	pid_t pid;
	struct maps *maps;
	struct process_file *files; /* as the dynamic linker searches them, mostly */
	size_t count;
	struct image **images; /* the files' */
	const char *unopened;  /* the path of a file that could not be opened, or NULL */
	int unopened_err;      /* why */
	size_t unopened_count; /* such files */
	struct linkage *linkage;
	struct probe_points *points; /* points->modules[i] are those of files[i] */
	struct runtimes *runtimes;
	struct locator *locator;
	int root_fd; /* of the process, or -1 */
};

/*
 * Errors: -ESRCH if the process is gone, -EACCES if its mappings may not be read, -ENOMEM, -E2BIG,
 * or those of locate_more().
 */
int process_points_find(pid_t pid, const struct process_points_options *options,
			struct process_points **ret);
void process_points_free(struct process_points *process);
DEFINE_CLEANUP(process_points, struct process_points *, process_points_free)

/* Of all files. */
size_t process_points_count(const struct process_points *process);

#endif
