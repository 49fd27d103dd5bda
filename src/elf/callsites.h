/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where calls can return to: what of an unwind table a stack walk can ever ask for. */
#ifndef HEAPTAP_ELF_CALLSITES_H
#define HEAPTAP_ELF_CALLSITES_H

#include "elf/code.h"

struct callsites {
	/*
	 * File offsets of the last byte of what can be a call instruction (the return address
	 * minus one, which a stack walk looks up), ascending, each once.
	 */
	uint32_t *lookups;
	size_t count;
};

/* Errors: -E2BIG for code past 4 GiB of the file, -ENOMEM. callsites_fini() is legal after both. */
int callsites_scan(const struct code *code, struct callsites *ret);
void callsites_fini(struct callsites *callsites);

/* Whether a lookup lies in [start, end). *cursor starts at 0; calls must come in ascending order.
 */
bool callsites_any(const struct callsites *callsites, size_t *cursor, uint64_t start, uint64_t end);

#endif
