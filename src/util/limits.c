/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every file that a target maps is held open, and so is its unwind table: on a whole machine more
 * than the customary 1024. The limit that programs are started with is theirs to raise.
 *
 * What a process allocates before its files are known is lost, or has its stacks cut. On a machine
 * that is busy, every time slice that is waited for is such a loss; of these few are needed.
 */
#include "util/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

static struct rlimit files_before;
static bool files_raised;
static int nice_before;

#define URGENT_NICE (-10)

void limits_set(void)
{
	struct rlimit files;

	/* Few arenas, and large blocks go back at once: reading files makes many of them. */
	mallopt(M_ARENA_MAX, 2);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	nice_before = getpriority(PRIO_PROCESS, 0);
	if (nice_before > URGENT_NICE)
		setpriority(PRIO_PROCESS, 0, URGENT_NICE);
	if (getrlimit(RLIMIT_NOFILE, &files_before))
		return;
	files = files_before;
	files.rlim_cur = files.rlim_max;
	files_raised = !setrlimit(RLIMIT_NOFILE, &files);
}

int limits_check_files(void)
{
	int opened[FILES_NEEDED], count = 0, err = 0;

	while (count < FILES_NEEDED && !err) {
		opened[count] = open("/", O_PATH | O_CLOEXEC);
		if (opened[count] < 0)
			err = -errno;
		else
			count++;
	}
	while (count)
		close(opened[--count]);
	return err;
}

void limits_reset(void)
{
	if (files_raised)
		setrlimit(RLIMIT_NOFILE, &files_before);
	limits_background();
}

/* Linux sets it for one thread. */
void limits_background(void)
{
	setpriority(PRIO_PROCESS, 0, nice_before);
}
