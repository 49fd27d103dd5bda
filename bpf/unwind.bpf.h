/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One step of the stack walk: from a frame to its caller. Pure but for unwind_read() and
 * unwind_recover(), which the includer defines: the unit tests compile this file on the host.
 *
 * Code with rows is unwound by its rule. Code without takes the frame-pointer step. Nothing proves
 * that rbp is a frame pointer there, so the step is believed only if it looks like one in every
 * respect: rbp aligned and above the stack pointer, within reach, and the word above it follows a
 * call instruction.
 */
#ifndef HEAPTAP_UNWIND_BPF_H
#define HEAPTAP_UNWIND_BPF_H

#include "heaptap/stack.h"
#include "heaptap/unwind.h"

/* Frames larger than this are not believed. */
#define UNWIND_MAX_FRAME_BYTES (16u << 20)

/* What is below the first page, or has any of the upper 17 bits set, is no user code address. */
#define UNWIND_MIN_PC 4096
#define UNWIND_MAX_PC (1ull << 47)

struct unwind_state {
	__u64 pc; /* inside the call instruction: the return address minus one */
	__u64 sp; /* after the return */
	__u64 bp;
	__u64 trampoline;  /* where the kernel lets probed functions return to; 0: nowhere */
	__u32 interrupted; /* pc is no call: a signal came there */
	__u32 guessed;	   /* a frame-pointer step was taken */
};

/* Reads `size` bytes of the target's memory; 0 or a negative error. */
static int unwind_read(void *to, __u32 size, __u64 address);
/* Reads one word of its stack; words of neighbouring frames are read together. */
static int unwind_read_word(struct unwind_state *state, __u64 *to, __u64 address);
/* The return address that a pending return probe replaced in this stack slot; 0 if none did. */
__u64 unwind_recover(__u64 slot);

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

/* The return address in a stack slot, in which `address` was read. */
static inline __u64 unwind_address(const struct unwind_state *state, __u64 address, __u64 slot)
{
	return address && address == state->trampoline ? unwind_recover(slot) : address;
}

/* Goes on to the caller. Returns STOP_COUNT to walk on, else why the walk ends. */
static inline enum stack_stop unwind_return(struct unwind_state *state, __u64 address, __u64 cfa,
					    __u64 bp)
{
	/* Hand-made stacks begin with 0; but so may whatever a guess has led to. */
	if (!address)
		return state->guessed ? STOP_NO_ROWS : STOP_END;
	state->sp = cfa;
	if (address < UNWIND_MIN_PC || address >= UNWIND_MAX_PC)
		return STOP_NO_MAPPING;
	state->pc = address - 1;
	state->bp = bp;
	state->interrupted = 0;
	return STOP_COUNT;
}

/* The step through code without rows; STOP_NO_ROWS if rbp does not look like a frame pointer. */
static inline enum stack_stop unwind_frame_pointer(struct unwind_state *state)
{
	__u64 bp, address;

	if (state->bp & 7 || state->bp < state->sp ||
	    state->bp - state->sp > UNWIND_MAX_FRAME_BYTES ||
	    unwind_read_word(state, &bp, state->bp) ||
	    unwind_read_word(state, &address, state->bp + 8))
		return STOP_NO_ROWS;
	address = unwind_address(state, address, state->bp + 8);
	if (address < UNWIND_MIN_PC || address >= UNWIND_MAX_PC || !unwind_follows_call(address))
		return STOP_NO_ROWS;
	state->guessed = 1;
	return unwind_return(state, address, state->bp + 16, bp);
}

/*
 * x86-64 signal frame: when the handler has returned to its restorer, sp is at the ucontext, and
 * the registers are 40 bytes into it (uc_flags 8, uc_link 8, uc_stack 24), in the order of
 * <sys/ucontext.h>: rbp 10, rsp 15, rip 16.
 */
static inline enum stack_stop unwind_signal_frame(struct unwind_state *state)
{
	__u64 registers[7]; /* rbp, rbx, rdx, rax, rcx, rsp, rip */

	if (unwind_read(registers, sizeof(registers), state->sp + 40 + 10 * 8))
		return STOP_FAULT;
	if (registers[6] < UNWIND_MIN_PC || registers[6] >= UNWIND_MAX_PC)
		return STOP_NO_MAPPING;
	state->bp = registers[0];
	state->sp = registers[5];
	state->pc = registers[6];
	state->interrupted = 1;
	return STOP_COUNT;
}

/* The step by a rule; STOP_NO_ROWS where the table says that it knows nothing of this code. */
static inline enum stack_stop unwind_rule_step(struct unwind_state *state,
					       const struct unwind_rule *rule)
{
	__u64 cfa = 0, bp = state->bp, address, from;

	state->guessed |= rule->guessed;
	switch (rule->cfa_kind) {
	case CFA_GAP:
		return STOP_NO_ROWS;
	case CFA_END:
		return STOP_END;
	case CFA_SIGNAL:
		return unwind_signal_frame(state);
	case CFA_SP:
		cfa = state->sp + rule->cfa_offset;
		break;
	case CFA_BP:
		cfa = state->bp + rule->cfa_offset;
		break;
	case CFA_PLT:
		cfa = state->sp + 8 + ((state->pc & 15) >= (__u32)rule->cfa_extra ? 8 : 0);
		break;
	case CFA_DEREF_BP:
	case CFA_DEREF_SP:
		from = (rule->cfa_kind == CFA_DEREF_BP ? state->bp : state->sp) + rule->cfa_offset;
		if (unwind_read_word(state, &cfa, from))
			return STOP_FAULT;
		cfa += rule->cfa_extra;
		break;
	default:
		return STOP_UNSUPPORTED;
	}
	/* Every frame lies above the last; anything else would not end. */
	if (cfa & 7 || cfa <= state->sp)
		return STOP_BAD_FRAME;
	/* The lower word first: the other then most often comes with it. */
	if (rule->bp_kind != BP_SAME) {
		from = (rule->bp_kind == BP_CFA ? cfa : state->bp) + rule->bp_offset;
		if (unwind_read_word(state, &bp, from))
			return STOP_FAULT;
	}
	if (unwind_read_word(state, &address, cfa - 8))
		return STOP_FAULT;
	address = unwind_address(state, address, cfa - 8);
	if (rule->guessed && !unwind_follows_call(address))
		return STOP_NO_ROWS;
	return unwind_return(state, address, cfa, bp);
}

#endif
