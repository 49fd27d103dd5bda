/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The account of anonymous mappings: what the kernel side tells of syscalls, put together per
 * process and added to the heap as sites of ACCOUNT_MAPPED.
 */
#ifndef HEAPTAP_MAPPINGS_H
#define HEAPTAP_MAPPINGS_H

#include "kernel.h"
#include "processes.h"
#include "profile/heap.h"
#include "util/cleanup.h"

struct mappings;

/* All must outlive it. Returns 0 or -ENOMEM. */
int mappings_new(struct kernel *kernel, struct processes *processes, struct heap *heap,
		 struct mappings **ret);
void mappings_free(struct mappings *mappings);
DEFINE_CLEANUP(mappings, struct mappings *, mappings_free)

/* Notes what the processes of the scope have mapped already. Returns 0 or a negative errno. */
int mappings_begin(struct mappings *mappings);

/*
 * Takes all that the kernel side has told. If some of that was lost, reads what processes really
 * have mapped. Returns 0 or a negative errno.
 */
int mappings_update(struct mappings *mappings);
/* Processes that processes.h knows to be gone have nothing mapped any more, but for the last one.
 */
void mappings_forget_gone(struct mappings *mappings);

/* Bytes that all processes have mapped now. */
uint64_t mappings_bytes(const struct mappings *mappings);

#endif
