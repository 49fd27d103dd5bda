/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every file that a target maps is held open, and so is its unwind table: on a whole machine more
 * than the customary 1024. The limit that programs are started with is theirs to raise.
 */
#include "util/limits.h"

#include <malloc.h>
#include <stdbool.h>
#include <sys/resource.h>

static struct rlimit files_before;
static bool files_raised;

void limits_set(void)
{
	struct rlimit files;

	/* Few arenas, and large blocks go back at once: reading files makes many of them. */
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	if (getrlimit(RLIMIT_NOFILE, &files_before))
		return;
	files = files_before;
	files.rlim_cur = files.rlim_max;
	files_raised = !setrlimit(RLIMIT_NOFILE, &files);
}

void limits_reset(void)
{
	if (files_raised)
		setrlimit(RLIMIT_NOFILE, &files_before);
}
