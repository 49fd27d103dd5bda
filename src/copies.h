/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of live records for children that are forked (--fork-copy): a child has in use what its
 * parent had at the fork, by the parent's stacks, and has allocated none of it.
 */
#ifndef HEAPTAP_COPIES_H
#define HEAPTAP_COPIES_H

#include <stdbool.h>

#include "kernel.h"
#include "profile/heap.h"
#include "util/cleanup.h"

struct copies;

/* split: each process has a last file of its own, which says what it had in use at its end. */
int copies_new(struct kernel *kernel, bool split, struct copies **ret);
void copies_free(struct copies *copies);
DEFINE_CLEANUP(copies, struct copies *, copies_free)

/*
 * Makes the copies that are due; none for a child that has executed a program or exited, unless a
 * snapshot shows it as it was before. Returns 0 or a negative errno.
 */
int copies_make(struct copies *copies);

/*
 * Tells the heap what children inherited that were forked in this epoch or before. To be called
 * when the epoch is drained; all copies for its children must have been made before that. What the
 * record's totals could not have yet is added to them. Returns 0 or -ENOMEM.
 */
int copies_inherit(struct copies *copies, struct heap *heap, struct epoch_record *record);

#endif
