/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The names of threads that allocate, numbered from 1 as they are met, so that a site and a live
 * record hold a number only. Threads of one name share it.
 */
#ifndef HEAPTAP_THREAD_H
#define HEAPTAP_THREAD_H

#include "heaptap/types.h"

/* As the kernel keeps them: 15 bytes and a zero; longer names were cut when they were set. */
#define THREAD_NAME_SIZE 16

/* Names beyond that have the number 0. It must fit site_key.thread. */
#define THREAD_NAMES_MAX 4096

struct thread_name {
	char text[THREAD_NAME_SIZE];
};

_Static_assert(THREAD_NAMES_MAX < 1 << 13, "a name's number fits site_key");

#endif
