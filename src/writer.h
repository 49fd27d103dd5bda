/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names and writes snapshots in a thread of its own, in order, so that the session goes on draining
 * the kernel's counters while names are looked up.
 */
#ifndef HEAPTAP_WRITER_H
#define HEAPTAP_WRITER_H

#include <stdbool.h>

#include "profile/snapshot.h"
#include "snapshots.h"

struct writer;

/* What every snapshot needs; all of it must outlive the writer. */
struct writer_context {
	struct images *images;
	struct symbolizer *symbolizer; /* used by the writer alone from now on */
	struct snapshots *snapshots;
	uint64_t sample_bytes;
	pid_t pid;  /* whose names writer_refresh() refreshes, or 0 */
	bool split; /* a series of files for each process */
};

int writer_new(const struct writer_context *context, struct writer **ret);
/* Writes what is waiting, then ends the thread. */
void writer_free(struct writer *writer);
DEFINE_CLEANUP(writer, struct writer *, writer_free)

/* Whether writer_add() would wait, as too many snapshots are queued. */
bool writer_is_full(struct writer *writer);

/*
 * Queues a snapshot. The input's heap, texts, processes and losses are copied; its images and
 * symbolizer are the context's, and its runtimes and threads must outlive the writer. Waits while
 * the queue is full. Returns 0 or -ENOMEM.
 */
int writer_add(struct writer *writer, const struct snapshot_input *input);

/* Takes note of the target's state, which may be gone soon; not while a snapshot is being named. */
void writer_refresh(struct writer *writer);

/* Waits until all are written, and says so on a terminal if it takes long. False if one failed. */
bool writer_finish(struct writer *writer);

#endif
