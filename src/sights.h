/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The images that the programs have met while they walked stacks: opened, given unwind tables and
 * addresses, and asked for runtimes. Part of the session.
 */
#ifndef HEAPTAP_SIGHTS_H
#define HEAPTAP_SIGHTS_H

#include <stdbool.h>

#include "kernel.h"
#include "probe/runtimes.h"
#include "processes.h"
#include "symbolize/images.h"
#include "unwind/tables.h"

struct sights;

/* All of it must outlive the sights. */
struct sights_context {
	struct kernel *kernel;
	struct images *images;
	struct tables *tables;
	struct runtimes *runtimes;
	struct processes *processes;
	bool lazy_tables; /* see allocators.h, as below */
	bool all_rows;
	bool tell_runtimes; /* what malloc's account lacks matters */
};

int sights_new(const struct sights_context *context, struct sights **ret);
void sights_free(struct sights *sights);
DEFINE_CLEANUP(sights, struct sights *, sights_free)

/* Files were added or mapped: they have no addresses yet. */
void sights_note_change(struct sights *sights);
/* Takes note of what was met since the last call. Returns 0 or a negative errno. */
int sights_update(struct sights *sights);
/* Says which runtimes there are that were not there before. */
void sights_tell_runtimes(struct sights *sights);

#endif
