/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a session waits for: signals, timers, and descriptors of others. */
#ifndef HEAPTAP_EVENT_LOOP_H
#define HEAPTAP_EVENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event_loop {
	int epoll_fd;
	int signal_fd; /* SIGINT, SIGTERM, SIGHUP, SIGUSR2 */
	int interval_fd;
	int duration_fd;
};

#define EVENT_LOOP_CLOSED ((struct event_loop){-1, -1, -1, -1})

/* Blocks these signals and ignores SIGPIPE. loop is closed before, and after a failure to be. */
int event_loop_open(struct event_loop *loop);
void event_loop_close(struct event_loop *loop);

/* Waits for a descriptor to be readable, too. Returns 0 or a negative errno. */
int event_loop_watch(const struct event_loop *loop, int fd);

/* A timer of the loop: after first_s, and every repeat_s from then on. 0 turns it off. */
int event_loop_set_timer(int fd, uint64_t first_s, uint64_t repeat_s);
/* Whether it has expired since the last look. */
bool event_loop_expired(int fd);

#endif
