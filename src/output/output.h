/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of writers. */
#ifndef HEAPTAP_OUTPUT_OUTPUT_H
#define HEAPTAP_OUTPUT_OUTPUT_H

#include <stdio.h>

#include "profile/profile.h"

struct output_options {
	size_t sample_index; /* the sample type shown by the text forms */
	bool full_names;     /* C++ names with their parameters and template arguments */
};

struct output_format {
	const char *name;
	const char *help;
	/* Returns 0 or a negative errno; a write error is the stream's. */
	int (*write)(const struct profile *profile, const struct output_options *options,
		     FILE *file);
};

/* NULL if there is no writer of this name: "pprof", "text", "folded". */
const struct output_format *output_find(const char *name);

#endif
