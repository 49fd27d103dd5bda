/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the allocators in the files that processes map, and puts the probes on them. Every file is
 * dealt with once, whichever process maps it and however often. Part of the session: prints its
 * errors.
 */
#ifndef HEAPTAP_ALLOCATORS_H
#define HEAPTAP_ALLOCATORS_H

#include <stddef.h>
#include <sys/types.h>

#include "kernel.h"
#include "symbolize/images.h"
#include "unwind/tables.h"

struct allocators;

/* All of it must outlive the allocators. */
struct allocators_context {
	struct kernel *kernel;
	struct attach *attach;
	struct tables *tables;
	struct images *images;
};

int allocators_new(const struct allocators_context *context, struct allocators **ret);
void allocators_free(struct allocators *allocators);

/*
 * Takes in files that a command will map, the program first: their unwind tables are published
 * and probes placed when it returns. The files go to images. Returns -ESRCH, and prints nothing, if
 * the process that the probes are for is gone.
 */
int allocators_add_files(struct allocators *allocators, char *const *paths, size_t count);

/*
 * The same for the files that a process maps as code, and for those that are new since the last
 * call. Returns -ESRCH, and prints nothing, if the process is gone.
 */
int allocators_add_process(struct allocators *allocators, pid_t pid);

/* Files with probes. */
size_t allocators_count(const struct allocators *allocators);

/* Prints that none of the files has an allocator, and what to do; returns a negative errno. */
int allocators_report_none(const struct allocators *allocators, pid_t pid, const char *comm);

#endif
