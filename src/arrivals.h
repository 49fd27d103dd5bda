/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Files that processes of the scope map after the attach, by dlopen() or exec(): whatever is new
 * has the allocators in it found. Part of the session.
 */
#ifndef HEAPTAP_ARRIVALS_H
#define HEAPTAP_ARRIVALS_H

#include <sys/types.h>

#include "allocators.h"
#include "util/cleanup.h"

struct arrivals;

/*
 * From here on no file that a process maps is missed. `many`: so many processes start that their
 * files are better read together, which takes 10 ms longer. allocators and kernel must outlive it.
 * Errors: -EACCES or -EPERM if the kernel does not allow perf events, -ENOMEM.
 */
int arrivals_new(struct allocators *allocators, const struct kernel *kernel, bool many,
		 struct arrivals **ret);
void arrivals_free(struct arrivals *arrivals);
DEFINE_CLEANUP(arrivals, struct arrivals *, arrivals_free)

/* Readable when arrivals_handle() is to be called. */
int arrivals_fd(const struct arrivals *arrivals);
/*
 * Returns how many new files were taken in, or a negative errno: -ENOMEM, or that the processes of
 * the scope cannot be listed. That one of them is gone is no error.
 */
int arrivals_handle(struct arrivals *arrivals);

#endif
