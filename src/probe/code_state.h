/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known about registers along a path of machine code. */
#ifndef HEAPTAP_PROBE_CODE_STATE_H
#define HEAPTAP_PROBE_CODE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <Zydis/Zydis.h>

/* Bit r is general register r, in the numbering of probe.h. */
struct code_state {
	uint16_t constants; /* holds a number near 0 that stands in the code... */
	uint16_t zeros;	    /* ...which may be 0 */
	uint16_t pointers;  /* holds what was loaded from a global variable, or dlsym()'s result */
	uint16_t results;   /* holds what a call returned that did not pass */
	bool passed;	    /* the user's mark of the path */
	/* By register, from which variables, as a set; that of dlsym()'s result is empty. */
	uint16_t variables[16];
};

/* No word at a fixed address, or one too many: what is loaded is no pointer. */
#define CODE_STATE_NO_VARIABLE 0u

/*
 * Takes note of an instruction that is no branch. variable: the user's bit for the word that it
 * loads, if it loads one at a fixed address, or CODE_STATE_NO_VARIABLE.
 */
void code_state_step(struct code_state *state, const ZydisDecodedInstruction *insn,
		     const ZydisDecodedOperand *operands, uint16_t variable);
/* A function was called, and returned. passes: the path is, or was, marked for it. */
void code_state_call(struct code_state *state, bool is_dlsym, bool passes);
/* Whether the function returns what a call returned that did not pass. */
bool code_state_returns_other(const struct code_state *state);

bool code_state_is_pointer(const struct code_state *state, ZydisRegister reg,
			   uint16_t *ret_variables);
/* What the function returns: a constant as failed functions do, which may be 0 or not. */
bool code_state_returns_constant(const struct code_state *state, bool *ret_zero);

/*
 * Two paths meet: *known and *state become what holds on both. False if *known does not change.
 */
bool code_state_join(struct code_state *known, struct code_state *state);

#endif
