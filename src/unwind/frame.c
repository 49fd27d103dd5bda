/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What instructions do to the stack pointer and the frame pointer. */
#include "unwind/frame.h"

/* Frames beyond this are not believed: all sums stay far from overflow. */
#define MAX_FRAME (1 << 28)

static bool is_rsp(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_RSP || reg == ZYDIS_REGISTER_ESP || reg == ZYDIS_REGISTER_SP ||
	       reg == ZYDIS_REGISTER_SPL;
}

static bool is_rbp(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_RBP || reg == ZYDIS_REGISTER_EBP || reg == ZYDIS_REGISTER_BP ||
	       reg == ZYDIS_REGISTER_BPL;
}

static bool is_reg(const ZydisDecodedOperand *operand, ZydisRegister reg)
{
	return operand->type == ZYDIS_OPERAND_TYPE_REGISTER && operand->reg.value == reg;
}

/* [base + displacement] and nothing else. */
static bool is_at(const ZydisDecodedOperand *operand, ZydisRegister base)
{
	return operand->type == ZYDIS_OPERAND_TYPE_MEMORY && operand->mem.base == base &&
	       operand->mem.index == ZYDIS_REGISTER_NONE &&
	       operand->mem.segment != ZYDIS_REGISTER_FS &&
	       operand->mem.segment != ZYDIS_REGISTER_GS;
}

static int32_t displacement(const ZydisDecodedOperand *operand)
{
	return operand->mem.disp.has_displacement ? (int32_t)operand->mem.disp.value : 0;
}

static void sp_lost(struct frame *frame)
{
	frame->sp_known = false;
}

static void sp_set(struct frame *frame, int64_t sp)
{
	/* Below 8 the return address itself was popped: it is somewhere else for a while. */
	frame->sp_known = sp >= 8 && sp <= MAX_FRAME;
	frame->sp = frame->sp_known ? (int32_t)sp : 0;
}

static void sp_move(struct frame *frame, int64_t pushed)
{
	if (frame->sp_known)
		sp_set(frame, frame->sp + pushed);
}

static void bp_set(struct frame *frame, int64_t bp)
{
	frame->bp_known = frame->sp_known && bp > -MAX_FRAME && bp < MAX_FRAME;
	frame->bp = frame->bp_known ? (int32_t)bp : 0;
	frame->bp_lost = !frame->bp_saved;
}

static void bp_written(struct frame *frame)
{
	frame->bp_known = false;
	frame->bp_lost = !frame->bp_saved;
}

static void bp_save(struct frame *frame, int64_t below_cfa)
{
	if (!frame->sp_known || frame->bp_saved || frame->bp_lost || below_cfa < 8 ||
	    below_cfa > MAX_FRAME)
		return;
	frame->bp_saved = true;
	frame->saved = (int32_t)below_cfa;
}

/* rbp was read from this distance below the CFA. */
static void bp_load(struct frame *frame, int64_t below_cfa)
{
	frame->bp_known = false;
	if (frame->bp_saved && frame->sp_known && frame->saved == below_cfa)
		frame->bp_saved = frame->bp_lost = false;
	else
		frame->bp_lost = !frame->bp_saved;
}

static void step_leave(struct frame *frame)
{
	frame->sp_known = frame->bp_known;
	sp_set(frame, frame->bp);
	frame->sp_known &= frame->bp_known;
	bp_load(frame, frame->sp);
	sp_move(frame, -8);
}

/* Whether the instruction is one of those that move rsp or rbp in a known way; if so, moves it. */
static bool step_known(struct frame *frame, const ZydisDecodedInstruction *insn,
		       const ZydisDecodedOperand *operands)
{
	const ZydisDecodedOperand *to = &operands[0], *from = &operands[1];

	switch (insn->mnemonic) {
	case ZYDIS_MNEMONIC_PUSH:
		sp_move(frame, insn->operand_width / 8);
		if (is_reg(to, ZYDIS_REGISTER_RBP) && !frame->bp_known)
			bp_save(frame, frame->sp);
		return true;
	case ZYDIS_MNEMONIC_PUSHFQ:
		sp_move(frame, 8);
		return true;
	case ZYDIS_MNEMONIC_POPFQ:
		sp_move(frame, -8);
		return true;
	case ZYDIS_MNEMONIC_POP:
		if (is_reg(to, ZYDIS_REGISTER_RSP))
			return false;
		if (is_reg(to, ZYDIS_REGISTER_RBP))
			bp_load(frame, frame->sp);
		sp_move(frame, -(insn->operand_width / 8));
		return true;
	case ZYDIS_MNEMONIC_LEAVE:
		step_leave(frame);
		return true;
	case ZYDIS_MNEMONIC_ADD:
	case ZYDIS_MNEMONIC_SUB:
		if (!is_reg(to, ZYDIS_REGISTER_RSP) || from->type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
			return false;
		sp_move(frame, insn->mnemonic == ZYDIS_MNEMONIC_SUB ? from->imm.value.s
								    : -from->imm.value.s);
		return true;
	case ZYDIS_MNEMONIC_LEA:
		if (is_reg(to, ZYDIS_REGISTER_RSP) && is_at(from, ZYDIS_REGISTER_RSP)) {
			sp_move(frame, -(int64_t)displacement(from));
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RSP) && is_at(from, ZYDIS_REGISTER_RBP) &&
		    frame->bp_known) {
			sp_set(frame, (int64_t)frame->bp - displacement(from));
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RBP) && is_at(from, ZYDIS_REGISTER_RSP)) {
			bp_set(frame, (int64_t)frame->sp - displacement(from));
			return true;
		}
		return false;
	case ZYDIS_MNEMONIC_MOV:
		if (is_reg(to, ZYDIS_REGISTER_RBP) && is_reg(from, ZYDIS_REGISTER_RSP)) {
			bp_set(frame, frame->sp);
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RSP) && is_reg(from, ZYDIS_REGISTER_RBP) &&
		    frame->bp_known) {
			sp_set(frame, frame->bp);
			return true;
		}
		if (is_at(to, ZYDIS_REGISTER_RSP) && is_reg(from, ZYDIS_REGISTER_RBP)) {
			if (!frame->bp_known)
				bp_save(frame, (int64_t)frame->sp - displacement(to));
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RBP) && is_at(from, ZYDIS_REGISTER_RSP)) {
			bp_load(frame, (int64_t)frame->sp - displacement(from));
			return true;
		}
		return false;
	case ZYDIS_MNEMONIC_XOR:
		/* The ABI's mark of the outermost frame, if rbp is still the caller's. */
		if (is_rbp(to->reg.value) && is_reg(from, to->reg.value) && !frame->bp_saved &&
		    !frame->bp_lost && !frame->bp_known)
			frame->end = true;
		return false;
	default:
		return false;
	}
}

void frame_step(struct frame *frame, const ZydisDecodedInstruction *insn,
		const ZydisDecodedOperand *operands)
{
	if (step_known(frame, insn, operands))
		return;
	for (size_t i = 0; i < insn->operand_count; i++) {
		if (operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		if (is_rsp(operands[i].reg.value))
			sp_lost(frame);
		if (is_rbp(operands[i].reg.value))
			bp_written(frame);
	}
}

struct unwind_rule frame_rule(const struct frame *frame)
{
	struct unwind_rule rule = {};

	if (frame->known && frame->end)
		return (struct unwind_rule){.cfa_kind = CFA_END};
	if (!frame->known || (!frame->sp_known && !frame->bp_known) ||
	    (frame->bp_lost && !frame->bp_saved))
		return (struct unwind_rule){.cfa_kind = CFA_GAP};
	rule.cfa_kind = frame->bp_known ? CFA_BP : CFA_SP;
	rule.cfa_offset = frame->bp_known ? frame->bp : frame->sp;
	if (frame->bp_saved) {
		rule.bp_kind = BP_CFA;
		rule.bp_offset = -frame->saved;
	}
	return rule;
}

static bool is_sp_or_bp(unsigned int number)
{
	return number == 4 || number == 5;
}

bool frame_concerns(const ZydisDecodedInstruction *insn)
{
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_NOP:
	case ZYDIS_CATEGORY_WIDENOP:
		return false;
	case ZYDIS_CATEGORY_PUSH:
	case ZYDIS_CATEGORY_POP:
	case ZYDIS_CATEGORY_BMI1:
	case ZYDIS_CATEGORY_BMI2:
		return true;
	default:
		break;
	}
	if (!(insn->attributes & ZYDIS_ATTRIB_HAS_MODRM))
		return true;
	return is_sp_or_bp(insn->raw.modrm.reg) ||
	       (insn->raw.modrm.mod == 3 && is_sp_or_bp(insn->raw.modrm.rm));
}
