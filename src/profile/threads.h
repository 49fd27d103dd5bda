/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The names of threads by the numbers that sites have. Names are only ever added: one thread may
 * read the names of sites that another has handed to it while that one adds more.
 */
#ifndef HEAPTAP_PROFILE_THREADS_H
#define HEAPTAP_PROFILE_THREADS_H

#include <stddef.h>
#include <stdint.h>

#include "heaptap/thread.h"
#include "util/cleanup.h"

struct threads;

int threads_new(struct threads **ret);
void threads_free(struct threads *threads);
DEFINE_CLEANUP(threads, struct threads *, threads_free)

/* The second name for a number is ignored, and so is a number that no name can have. */
void threads_add(struct threads *threads, uint32_t number, const struct thread_name *name);
/* How many have a name. */
size_t threads_count(const struct threads *threads);
/*
 * A thread's label: its name, "(other)" if it was one too many, "(unnamed)" if it has taken its
 * name away, and what is no UTF-8 replaced by "?".
 */
const char *threads_label(const struct threads *threads, uint32_t number);

#endif
