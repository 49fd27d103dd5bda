/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a session says about its own work: losses at its end, and numbers for -v. */
#ifndef HEAPTAP_SUMMARY_H
#define HEAPTAP_SUMMARY_H

#include "kernel.h"
#include "profile/heap.h"
#include "symbolize/symbolizer.h"
#include "unwind/tables.h"

/* What was lost, how complete the stacks are, and the sampling error. */
void summary_losses(const struct loss_counter losses[LOSS_COUNT], const struct heap *heap,
		    uint32_t accounts, uint64_t sample_bytes, bool own_samples);
void summary_symbols(struct symbolizer *symbolizer);
void summary_tables(struct tables *tables);

/* Who was not counted. */
void summary_processes(const struct kernel *kernel);

#endif
