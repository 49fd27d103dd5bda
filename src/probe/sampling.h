/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sampler's tables, computed where floating point is at hand. */
#ifndef HEAPTAP_PROBE_SAMPLING_H
#define HEAPTAP_PROBE_SAMPLING_H

#include "heaptap/weight.h"

/* sample_bytes: the mean distance between samples, 1 to SAMPLE_BYTES_MAX. */
void sampling_tables_fill(struct sampling_tables *tables, __u64 sample_bytes);

#endif
