/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Snapshot files, whole or not there at all. */
#ifndef HEAPTAP_OUTPUT_FILE_H
#define HEAPTAP_OUTPUT_FILE_H

#include "output/output.h"

/*
 * Writes the profile under a temporary name in the same folder, then renames it to path; a reader
 * never sees half a file. On error the temporary file is removed and a negative errno returned.
 */
int output_write_file(const struct profile *profile, const struct output_format *format,
		      const char *path);

#endif
