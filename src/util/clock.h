/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Clocks in nanoseconds. */
#ifndef HEAPTAP_UTIL_CLOCK_H
#define HEAPTAP_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

#endif
