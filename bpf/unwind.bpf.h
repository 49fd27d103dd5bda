/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One step of the stack walk: from a frame to its caller. Pure but for unwind_read(), which the
 * includer defines: the unit tests compile this file on the host.
 *
 * Code without rows takes the frame-pointer step. Nothing proves that rbp is a frame pointer
 * there, so the step is believed only if it looks like one in every respect: rbp aligned and above
 * the stack pointer, within reach, and the word above it follows a call instruction.
 */
#ifndef HEAPTAP_UNWIND_BPF_H
#define HEAPTAP_UNWIND_BPF_H

#include "heaptap/stack.h"

/* Frames larger than this are not believed. */
#define UNWIND_MAX_FRAME_BYTES (16u << 20)

/* What is below the first page, or has any of the upper 17 bits set, is no user code address. */
#define UNWIND_MIN_PC 4096
#define UNWIND_MAX_PC (1ull << 47)

struct unwind_state {
	__u64 pc; /* inside the call instruction: the return address minus one */
	__u64 sp; /* after the return */
	__u64 bp;
};

/* Reads `size` bytes of the target's memory; 0 or a negative error. */
static int unwind_read(void *to, __u32 size, __u64 address);
/* The return address that a pending return probe replaced in this stack slot, else `address`. */
static __u64 unwind_recover(__u64 address, __u64 slot);

/* Whether the instruction that ends at `address` can be a call: e8 rel32, or ff /2 of 2-7 bytes. */
static inline int unwind_follows_call(__u64 address)
{
	__u8 code[7];
	int length;

	if (unwind_read(code, sizeof(code), address - sizeof(code)))
		return 0;
	if (code[2] == 0xe8)
		return 1;
	for (length = 2; length <= 7; length++) {
		if (code[7 - length] == 0xff && (code[8 - length] >> 3 & 7) == 2)
			return 1;
	}
	return 0;
}

/* Returns STOP_COUNT to go on, else why the walk ends. */
static inline enum stack_stop unwind_frame_pointer(struct unwind_state *state)
{
	__u64 words[2]; /* the caller's rbp, the return address */

	if (state->bp & 7 || state->bp < state->sp || state->bp - state->sp > UNWIND_MAX_FRAME_BYTES)
		return STOP_FRAME_POINTER;
	if (unwind_read(words, sizeof(words), state->bp))
		return STOP_FAULT;
	words[1] = unwind_recover(words[1], state->bp + 8);
	if (words[1] < UNWIND_MIN_PC || words[1] >= UNWIND_MAX_PC || !unwind_follows_call(words[1]))
		return STOP_FRAME_POINTER;
	state->pc = words[1] - 1;
	state->sp = state->bp + 16;
	state->bp = words[0];
	return STOP_COUNT;
}

#endif
