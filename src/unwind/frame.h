/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A function's frame while its code is decoded: where the CFA is, and the caller's rbp.
 */
#ifndef HEAPTAP_UNWIND_FRAME_H
#define HEAPTAP_UNWIND_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <Zydis/Zydis.h>

#include "heaptap/unwind.h"

struct frame {
	bool known;	 /* reached, and decoded up to here */
	bool end;	 /* of the outermost frame */
	bool sp_known;	 /* CFA is rsp + sp */
	bool bp_known;	 /* CFA is rbp + bp */
	bool bp_saved;	 /* the caller's rbp is at CFA - saved */
	bool bp_lost;	 /* overwritten without having been saved */
	bool guessed;	 /* from how a function may begin, not from what leads here */
	bool after_call; /* which may not return */
	int32_t sp;
	int32_t bp;
	int32_t saved;
};

/* At a function's first instruction. */
#define FRAME_AT_ENTRY ((struct frame){.known = true, .sp_known = true, .sp = 8})

/*
 * Whether an instruction other than a branch can write rsp or rbp, or store rbp. It is told without
 * the operands: decoding these costs as much as all the rest.
 */
bool frame_concerns(const ZydisDecodedInstruction *insn);

/* Applies the instruction. */
void frame_step(struct frame *frame, const ZydisDecodedInstruction *insn,
		const ZydisDecodedOperand *operands);

struct unwind_rule frame_rule(const struct frame *frame);

#endif
