/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/log.h"

int loop_watch(const struct loop *loop, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int loop_open(struct loop *loop)
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
		return log_error(errno, "cannot set up the event loop");
	err = loop_watch(loop, loop->signal_fd);
	if (!err)
		err = loop_watch(loop, loop->interval_fd);
	if (!err)
		err = loop_watch(loop, loop->duration_fd);
	return err ? log_error(err, "cannot set up the event loop") : 0;
}

void loop_close(struct loop *loop)
{
	const int fds[] = {loop->epoll_fd, loop->signal_fd, loop->interval_fd, loop->duration_fd};

	for (unsigned int i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int loop_wait_ms(uint64_t due_ns)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (due_ns == UINT64_MAX)
		return -1;
	return now >= due_ns ? 0 : (due_ns - now) / 1000000 + 1;
}
