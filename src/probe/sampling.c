/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/sampling.h"

#include <math.h>
#include <string.h>

void sampling_tables_fill(struct sampling_tables *tables, __u64 sample_bytes)
{
	memset(tables, 0, sizeof(*tables));
	tables->sample_bytes = sample_bytes;
	for (int i = 0; i <= WEIGHT_STEPS; i++) {
		double x = (double)i / (1 << WEIGHT_STEP_SHIFT);
		/* Both have a removable singularity at 0. */
		double g = i ? x / -expm1(-x) : 1;
		double root = i ? x / 2 / sinh(x / 2) : 1;

		tables->g[i] = llround(ldexp(g, 32));
		tables->variance[i] = lround(ldexp(root * root, WEIGHT_VARIANCE_SHIFT));
	}
	for (int i = 0; i <= LOG2_STEPS; i++)
		tables->log2[i] = llround(ldexp(log2(1 + (double)i / LOG2_STEPS), 32));
}
