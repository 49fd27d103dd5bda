/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The functions of a unit by address, and the calls that were inlined into them.
 *
 * Functions are indexed once per unit, first those at its top and in namespaces. Only for an
 * address that none of them holds, those inside types and functions are added. Inlined calls are
 * found by walking down one function's entries.
 */
#ifndef HEAPTAP_SYMBOLIZE_INLINES_H
#define HEAPTAP_SYMBOLIZE_INLINES_H

#include "symbolize/dwarf_unit.h"
#include "symbolize/pcmap.h"

/* Deeper chains lose their innermost calls. */
#define INLINES_MAX_DEPTH 256

struct inlines {
	struct pcmap functions; /* offsets of entries */
	bool indexed;
	bool deep;
};

/* An inlined call, or the function itself, which comes last and has no call. */
struct inline_call {
	const char *name; /* owned by the unit's file, or its supplement */
	uint64_t start_line;
	uint64_t call_file; /* in the unit's own line table; 0 if not known */
	uint64_t call_line;
};

void inlines_fini(struct inlines *inlines);

/*
 * The chain at an address, innermost first, into calls[INLINES_MAX_DEPTH]. *ret_count is 0 if no
 * function has it. Returns 0, -ENOMEM or -E2BIG once the work is used up.
 */
int inlines_lookup(struct inlines *inlines, const struct dwarf_unit *unit, uint64_t addr,
		   struct work *work, struct inline_call *calls, size_t *ret_count);

#endif
