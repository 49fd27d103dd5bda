/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The descriptors of a session's event loop: one epoll, the signals, and the session's timers. */
#ifndef HEAPTAP_LOOP_H
#define HEAPTAP_LOOP_H

#include <stdint.h>

struct loop {
	int epoll_fd;
	int signal_fd; /* of those that end a session or ask for a snapshot */
	int interval_fd;
	int duration_fd;
};

#define LOOP_CLOSED                                                                                \
	{                                                                                          \
		-1, -1, -1, -1                                                                     \
	}

/* Blocks the signals for the process. Prints its errors. */
int loop_open(struct loop *loop);
void loop_close(struct loop *loop);
/* How long to wait for events until due_ns (CLOCK_MONOTONIC; UINT64_MAX: for ever). */
int loop_wait_ms(uint64_t due_ns);
/* Also waits for this descriptor to be readable. Returns 0 or a negative errno. */
int loop_watch(const struct loop *loop, int fd);

#endif
