/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which of the functions that targets reach are reached by others, too. For flow.c. */
#ifndef HEAPTAP_PROBE_CODE_SHARING_H
#define HEAPTAP_PROBE_CODE_SHARING_H

#include <stdbool.h>
#include <stdint.h>

#include "probe/code_graph.h"

/* Once all bodies were followed; marks graph->parts, and sorts them. Errors: -ENOMEM. */
int code_sharing_find(struct code_graph *graph);

/* Whether the instruction that ends at an address is in a function that others reach. */
bool code_sharing_has(const struct code_graph *graph, uint64_t end);

#endif
