/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What one of several processes knows about its own heap, in a file truth.PID. */
#ifndef TRUTH_PROCESS_H
#define TRUTH_PROCESS_H

#include <fcntl.h>

#include "truth.h"

/*
 * In one write, so that processes with one PID never mix; nothing here allocates. is_replaced: by
 * another program, which has nothing in use of it.
 */
static inline void write_truth(const char *role, bool is_replaced)
{
	char path[64], text[2048];
	int length, fd;

	snprintf(path, sizeof(path), "truth.%d", getpid());
	length = snprintf(text, sizeof(text), "process=%d role=%s\n", getpid(), role);
	for (struct site *site = __start_truth_sites; site < __stop_truth_sites; site++) {
		unsigned long inuse_objects = site->alloc_objects - site->freed_objects;
		unsigned long inuse_space = site->alloc_space - site->freed_space;

		length += snprintf(text + length, sizeof(text) - length,
				   "site=%s alloc_objects=%lu alloc_space=%lu inuse_objects=%lu "
				   "inuse_space=%lu\n",
				   site->name, (unsigned long)site->alloc_objects,
				   (unsigned long)site->alloc_space,
				   is_replaced ? 0 : inuse_objects, is_replaced ? 0 : inuse_space);
	}
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	require(fd >= 0);
	require(write(fd, text, length) == length);
	close(fd);
}

#endif
