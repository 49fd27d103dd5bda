/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Opens the files that processes map as code, each once. What a file is, is told by its image id;
 * the names and inodes that mappings show only save opening it again. Part of the session: prints
 * its errors.
 */
#ifndef HEAPTAP_NEW_FILES_H
#define HEAPTAP_NEW_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "elf/image.h"
#include "kernel.h"
#include "proc/maps.h"
#include "util/cleanup.h"

struct known_file;
struct known_files; /* those that were new once */

struct new_file {
	struct image *image;
	struct known_file *known; /* until it is identified */
	uint64_t size;
	__u32 id;
};

/* The files of one call; begins as zeroes. */
struct new_files {
	struct new_file *entries;
	size_t count;
	bool late;	   /* the process runs with them, and others are counted already */
	uint64_t since_ns; /* late: when the first was mapped (CLOCK_MONOTONIC), or 0 */
	bool missed;	   /* the process has unmapped one by now, or is gone */
};

void new_files_fini(struct new_files *files);

static inline void cleanup_new_files(struct new_files *files)
{
	new_files_fini(files);
}

/* Files that have to be left out are counted as losses of the kernel, which must outlive them. */
int known_files_new(struct kernel *kernel, struct known_files **ret);
void known_files_free(struct known_files *known);

/* The image id of the file behind a mapping, or 0 if it was not identified. */
uint32_t known_files_lookup(const struct known_files *known, const struct mapping *mapping);

/* Opens files by their paths. What is no ELF file is left out, here and below. */
int new_files_open_paths(struct new_files *files, char *const *paths, size_t count);

/*
 * Opens what a process maps as code, the program first. A file that cannot be opened is left out,
 * with a warning.
 */
int new_files_open_mappings(struct new_files *files, struct known_files *known, pid_t pid,
			    const struct maps *maps);

/*
 * Gives the files their image ids, drops those that are known by them, and knows the others. Files
 * that are given none are left out, with a warning for the first.
 */
int new_files_identify(struct new_files *files, struct known_files *known);

#endif
