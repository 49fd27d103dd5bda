/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The writers behind the table of output.h, one per file. */
#ifndef HEAPTAP_OUTPUT_WRITERS_H
#define HEAPTAP_OUTPUT_WRITERS_H

#include "output/output.h"

int pprof_write(const struct profile *profile, const struct output_options *options, FILE *file);
int text_write(const struct profile *profile, const struct output_options *options, FILE *file);
int folded_write(const struct profile *profile, const struct output_options *options, FILE *file);

#endif
