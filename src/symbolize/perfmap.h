/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The names that a JIT compiler writes to /tmp/perf-PID.map, one function a line:
 *   START SIZE NAME
 * with START and SIZE in hexadecimal. Source: tools/perf/Documentation/jit-interface.txt in Linux.
 */
#ifndef HEAPTAP_SYMBOLIZE_PERFMAP_H
#define HEAPTAP_SYMBOLIZE_PERFMAP_H

#include <stddef.h>
#include <stdint.h>

#include "util/cleanup.h"

struct perfmap;

int perfmap_new(struct perfmap **ret);
void perfmap_free(struct perfmap *perfmap);
DEFINE_CLEANUP(perfmap, struct perfmap *, perfmap_free)

/*
 * Reads the file if it is not as it was read last. Names returned before are gone then. The file is
 * the target's: lines that make no sense are skipped and counted, and so is all beyond 64 MiB.
 * Returns 0, -ENOMEM or a read error; the old contents stay on error.
 */
int perfmap_read(struct perfmap *perfmap, int fd);

/* The function at an address, the one written last if there are several; NULL if there is none. */
const char *perfmap_lookup(const struct perfmap *perfmap, uint64_t address);

/* Lines skipped in the file as it was read last. */
size_t perfmap_malformed(const struct perfmap *perfmap);

#endif
