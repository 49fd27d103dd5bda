/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The separate debug file of a stripped image.
 *
 * Searched for by build-id, then by .gnu_debuglink and its checksum, in the target's own root, in
 * ours and in folders that the user names; then, if the user has set DEBUGINFOD_URLS, asked for at
 * these servers. A file whose build-id is not the image's is never taken.
 */
#ifndef HEAPTAP_ELF_DEBUGINFO_H
#define HEAPTAP_ELF_DEBUGINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

struct debuginfo;

/*
 * dirs are folders laid out like /usr/lib/debug, searched first; copied. Opens no connection.
 * Errors: -ENOMEM.
 */
int debuginfo_new(const char *const *dirs, size_t dir_count, struct debuginfo **ret);
void debuginfo_free(struct debuginfo *debuginfo);
DEFINE_CLEANUP(debuginfo, struct debuginfo *, debuginfo_free)

/*
 * Finds and opens an image's debug file. root_fd is the target's root, as of root_open(), or -1.
 * With `download`, servers are asked as well: at most 20 s for a file and 60 s in all; one that
 * fails is not asked again. Errors: -ENOENT if there is none, -ENOMEM.
 */
int debuginfo_find(struct debuginfo *debuginfo, const struct image *image, int root_fd,
		   bool download, struct image **ret);

/* Whether an image has DWARF of its own. */
bool debuginfo_has_dwarf(const struct image *image);

struct debuginfo_stats {
	size_t found;
	size_t refused;	     /* files of another build-id or with a wrong checksum */
	size_t downloads;    /* files asked for */
	size_t download_ns;  /* time spent on them */
	bool servers_failed; /* and are not asked any more */
};

void debuginfo_read_stats(const struct debuginfo *debuginfo, struct debuginfo_stats *ret);

#endif
