/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "output/output.h"

#include <string.h>

#include "output/writers.h"
#include "util/cleanup.h"

static const struct output_format formats[] = {
	{"pprof", "gzip'd profile.proto, for pprof and everything that reads its files",
	 pprof_write},
	{"text", "a table of functions", text_write},
	{"folded", "one line per stack, for flame graphs", folded_write},
};

const struct output_format *output_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	}
	return NULL;
}
