/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "event_loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "util/cleanup.h"

int event_loop_open(struct event_loop *loop)
{
	sigset_t signals;
	int err;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGUSR2);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	loop->interval_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	loop->duration_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (loop->epoll_fd < 0 || loop->signal_fd < 0 || loop->interval_fd < 0 ||
	    loop->duration_fd < 0)
		return -errno;
	err = event_loop_watch(loop, loop->signal_fd);
	if (!err)
		err = event_loop_watch(loop, loop->interval_fd);
	return err ? err : event_loop_watch(loop, loop->duration_fd);
}

void event_loop_close(struct event_loop *loop)
{
	const int fds[] = {loop->epoll_fd, loop->signal_fd, loop->interval_fd, loop->duration_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	*loop = EVENT_LOOP_CLOSED;
}

int event_loop_watch(const struct event_loop *loop, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int event_loop_set_timer(int fd, uint64_t first_s, uint64_t repeat_s)
{
	struct itimerspec spec = {
		.it_value.tv_sec = (time_t)first_s,
		.it_interval.tv_sec = (time_t)repeat_s,
	};

	return timerfd_settime(fd, 0, &spec, NULL) ? -errno : 0;
}

bool event_loop_expired(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == sizeof(count);
}
