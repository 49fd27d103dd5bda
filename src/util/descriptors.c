/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/descriptors.h"

#include <stdbool.h>
#include <sys/resource.h>

static struct rlimit before;
static bool raised;

void descriptors_raise(void)
{
	struct rlimit all;

	if (raised || getrlimit(RLIMIT_NOFILE, &before))
		return;
	all = (struct rlimit){.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
	raised = !setrlimit(RLIMIT_NOFILE, &all);
}

void descriptors_restore(void)
{
	if (raised)
		setrlimit(RLIMIT_NOFILE, &before);
	raised = false;
}
