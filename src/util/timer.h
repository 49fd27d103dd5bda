/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Timer descriptors (timerfd_create) in seconds. */
#ifndef HEAPTAP_UTIL_TIMER_H
#define HEAPTAP_UTIL_TIMER_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Expires once after first_s, then every repeat_s, if that is not 0. */
static inline int timer_set(int fd, uint64_t first_s, uint64_t repeat_s)
{
	struct itimerspec spec = {.it_value.tv_sec = first_s, .it_interval.tv_sec = repeat_s};

	return timerfd_settime(fd, 0, &spec, NULL) ? -errno : 0;
}

/* Whether it has since the last call; fd is non-blocking. */
static inline bool timer_expired(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == sizeof(count);
}

#endif
