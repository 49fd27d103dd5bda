/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unwind tables: how a frame's caller is found from its code's file offset.
 *
 * An image's table is an array of rows sorted by file offset; a row holds from its offset to the
 * next row's. Rows name a rule; equal rules of all images are stored once. On x86-64 the return
 * address always lies just below the CFA, and only rbp is tracked besides the stack pointer.
 */
#ifndef HEAPTAP_UNWIND_H
#define HEAPTAP_UNWIND_H

#include "heaptap/types.h"

enum unwind_cfa {
	CFA_GAP,	 /* no function with unwind information here */
	CFA_UNSUPPORTED, /* there is information, but it cannot be expressed */
	CFA_END,	 /* the outermost frame: no return address */
	CFA_SP,		 /* sp + offset */
	CFA_BP,		 /* bp + offset */
	CFA_DEREF_BP,	 /* *(bp + offset): a realigned stack */
	CFA_DEREF_SP,	 /* *(sp + offset) + extra */
	CFA_PLT,	 /* sp + 8 + ((pc & 15) >= extra ? 8 : 0): a PLT stub */
	CFA_SIGNAL,	 /* a signal frame: all registers are in the ucontext at sp */
	CFA_KINDS
};

enum unwind_bp {
	BP_SAME,     /* the caller's bp is still in bp */
	BP_CFA,	     /* *(cfa + offset) */
	BP_DEREF_BP, /* *(bp + offset) */
	BP_KINDS
};

struct unwind_rule {
	__u8 cfa_kind; /* enum unwind_cfa */
	__u8 bp_kind;  /* enum unwind_bp */
	__u16 guessed; /* 1: from code whose function bounds are not known for sure */
	__s32 cfa_offset;
	__s32 bp_offset;
	__s32 cfa_extra;
};

/*
 * The first row of a table is its header: `offset` is the number of rows that follow. So a reader
 * that holds a table can never have another table's size in mind.
 */
struct unwind_row {
	__u32 offset; /* in the file */
	__u16 rule;   /* index of the rule table */
	__u16 pad;
};

/* What the walker knows of an image, by image id: set after its table is in place. */
#define UNWIND_BUILT	1u /* the loader is done with the image, even if it has no rows */
#define UNWIND_ALL_ROWS 2u /* rows for every instruction, not only for call sites */
#define UNWIND_WANT_ALL 4u /* set by the walker: it was interrupted between call sites here */
#define UNWIND_WANTED	8u /* set by the walker: it came through here and there was no table */

/* Rules of all images of a session. 434 files of Debian 12 need some 2,000. */
#define UNWIND_MAX_RULES 32768
/* Images of a session; also bounds their ids. */
#define UNWIND_MAX_IMAGES 8192
/* Turns of a binary search: enough for 2^24 rows, ten times the largest image known. */
#define UNWIND_SEARCH_DEPTH 24
#define UNWIND_MAX_ROWS	    (1u << UNWIND_SEARCH_DEPTH)

_Static_assert(sizeof(struct unwind_rule) == 16, "rule layout");
_Static_assert(sizeof(struct unwind_row) == 8, "row layout");
_Static_assert(UNWIND_MAX_RULES <= 1 << 16, "a row's rule is 16 bits");

#endif
