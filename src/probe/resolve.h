/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the functions of a library are in one image. Linkers move sections as a whole, so a section
 * is what is searched for, all of its bytes; its functions follow. A section that is there once is
 * found, unless
 *  - the library has another of the same bytes (musl's calloc and __libc_calloc), or it is so short
 *    that anything may look like it (a jump): then what it refers to must be where that was found;
 *  - the library has another of the same code (musl's malloc and __libc_malloc, both a jump to one
 *    function): then code that refers to it tells which it is, or the order of the sections.
 * Where the section is not there as a whole, its functions are searched for one by one.
 */
#ifndef HEAPTAP_PROBE_RESOLVE_H
#define HEAPTAP_PROBE_RESOLVE_H

#include "probe/match.h"

enum resolve_state {
	RESOLVE_UNKNOWN,
	RESOLVE_BUSY,
	RESOLVE_FOUND,
	RESOLVE_ABSENT,
	RESOLVE_AMBIGUOUS,
};

struct resolve {
	const struct archive *archive;
	struct match_text text;
	uint8_t *states;   /* enum resolve_state, by section */
	uint64_t *starts;  /* virtual addresses by function; 0: not found */
	uint64_t *implied; /* by name: where found code refers to; 0: nowhere; all ones: unclear */
};

/* Errors as match_text_read(); resolve_fini() is legal after them. */
int resolve_init(struct resolve *resolve, const struct archive *archive, struct image *image);
void resolve_fini(struct resolve *resolve);

/* Looks for a function; FOUND, ABSENT or AMBIGUOUS. */
enum resolve_state resolve_function(struct resolve *resolve, uint32_t function);

/* Lets all but what was found be looked for again: what was found since may decide it. */
void resolve_again(struct resolve *resolve);

#endif
