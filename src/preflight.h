/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether this machine and this user can profile at all. Prints its errors. */
#ifndef HEAPTAP_PREFLIGHT_H
#define HEAPTAP_PREFLIGHT_H

#include <stdbool.h>

#include "kernel.h"
#include "probe/attach.h"

/*
 * Checks what every session needs and chooses the attach mode: the one that is wanted, or for
 * ATTACH_AUTO the best that this kernel has.
 */
int preflight_check(enum attach_mode wanted, enum attach_mode *ret);

/* Loads the kernel side and attaches it to the life of processes. Prints its errors. */
int preflight_load(const struct kernel_options *options, struct kernel **ret);

/*
 * Attaches the programs of MODE_FAULTS, and warns if page tables cannot be read. Prints its errors.
 */
int preflight_faults(const struct kernel *kernel, struct kernel_faults **ret);

/* Elsewhere PIDs mean something else. */
bool preflight_in_initial_pid_namespace(void);

#endif
