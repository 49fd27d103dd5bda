/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target of a session: a running process, or a command that is held until the probes are in
 * place. Part of the session: prints its errors, with the next step.
 */
#ifndef HEAPTAP_TARGET_H
#define HEAPTAP_TARGET_H

#include <stdbool.h>
#include <sys/types.h>

#include "allocators.h"

struct target;

/*
 * Opens the process, or holds the command. Refuses what cannot be profiled: kernel threads,
 * zombies, threads, heaptap itself and, unless forced, a process that its seccomp filter may kill.
 */
int target_open(pid_t pid, char **command, bool force, struct target **ret);
void target_free(struct target *target);

/*
 * Places the probes on the allocators in the target's files. An error if there are none, unless
 * wait is set and it may still load one.
 */
int target_attach(struct target *target, struct allocators *allocators, bool wait);

/* Lets a held command go. */
int target_start(struct target *target);

pid_t target_pid(const struct target *target);
const char *target_comm(const struct target *target);
/* An environment variable of its; arg is the target. For runtimes_new(). */
int target_variable(void *arg, const char *name, char *value, size_t size);
/* The root of a running process, for root_open_file(), to be closed; -1 for a command. */
int target_open_root(const struct target *target);
/* Readable when the target has exited. */
int target_fd(const struct target *target);
/* Says how a command ended, or that it goes on. */
void target_report_end(struct target *target);

#endif
