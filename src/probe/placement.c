/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probe placement.
 *
 * A uprobe costs some four times more where the kernel has to single-step the replaced instruction
 * than where it emulates it. So the function is decoded from its start up to the first instruction
 * of the emulated kind, and that one is taken if it is as good as the entry:
 *  - it is executed on every call, once: it comes before any branch, and no jump of the function
 *    leads to it or to an instruction before it other than the entry;
 *  - the stack pointer has not moved: [rsp] is still the return address;
 *  - the arguments needed are still in registers. Copies are followed, a written register is lost.
 * free() gets one branch more: behind `test ptr,ptr; je` the next such instruction sees only
 * non-NULL pointers, which saves the trap for free(NULL).
 */
#include "probe/placement.h"

#include <stdbool.h>
#include <Zydis/Zydis.h>

#define NO_REGISTER 0xff
#define RSP	    4

enum argument { ARG_SIZE, ARG_AUX, ARG_PTR, ARG_COUNT };

/* holders[a] has bit r set while register r holds argument a. */
struct state {
	uint16_t holders[ARG_COUNT];
	uint16_t needed[ARG_COUNT]; /* nonzero if the function has the argument: its register */
	bool stack_moved;
	/* The last instruction was `test r,r` of this register. */
	uint8_t tested;
};

/*
 * What every kernel since 4.16 emulates: arch/x86/kernel/uprobes.c, branch_setup_xol_ops() and
 * push_setup_xol_ops(). The longer NOPs are emulated by 6.18 and later only. Prefixed forms are
 * left out: some cannot be probed at all.
 */
static bool is_emulated(const uint8_t *code, size_t length)
{
	switch (code[0]) {
	case 0x50 ... 0x57: /* push */
	case 0x70 ... 0x7f: /* jcc rel8 */
	case 0x90:	    /* nop */
	case 0xe8:	    /* call */
	case 0xe9:	    /* jmp */
	case 0xeb:
		return true;
	case 0x0f: /* jcc rel32 */
		return length > 1 && code[1] >= 0x80 && code[1] <= 0x8f;
	case 0x41: /* push r8 to r15 */
		return length == 2 && code[1] >= 0x50 && code[1] <= 0x57;
	default:
		return false;
	}
}

static uint8_t gpr_number(ZydisRegister reg)
{
	ZydisRegister large = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

	if (ZydisRegisterGetClass(large) != ZYDIS_REGCLASS_GPR64)
		return NO_REGISTER;
	return (uint8_t)ZydisRegisterGetId(large);
}

static bool is_gpr64(const ZydisDecodedOperand *operand)
{
	return operand->type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       ZydisRegisterGetClass(operand->reg.value) == ZYDIS_REGCLASS_GPR64;
}

static void state_step(struct state *state, const ZydisDecodedInstruction *insn,
		       const ZydisDecodedOperand *operands)
{
	uint16_t copied[ARG_COUNT] = {};
	uint8_t target = NO_REGISTER;

	state->tested = NO_REGISTER;
	if (insn->mnemonic == ZYDIS_MNEMONIC_TEST && is_gpr64(&operands[0]) &&
	    is_gpr64(&operands[1]) && operands[0].reg.value == operands[1].reg.value)
		state->tested = gpr_number(operands[0].reg.value);
	if (insn->mnemonic == ZYDIS_MNEMONIC_MOV && is_gpr64(&operands[0]) &&
	    is_gpr64(&operands[1])) {
		uint8_t source = gpr_number(operands[1].reg.value);

		target = gpr_number(operands[0].reg.value);
		for (int a = 0; a < ARG_COUNT; a++)
			copied[a] = (state->holders[a] >> source & 1) << target;
	}
	for (size_t i = 0; i < insn->operand_count; i++) {
		uint8_t written;

		if (operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		written = gpr_number(operands[i].reg.value);
		if (written == NO_REGISTER)
			continue;
		if (written == RSP)
			state->stack_moved = true;
		for (int a = 0; a < ARG_COUNT; a++)
			state->holders[a] &= ~(1u << written);
	}
	for (int a = 0; a < ARG_COUNT; a++)
		state->holders[a] |= copied[a];
}

static const char *state_refusal(const struct state *state)
{
	if (state->stack_moved)
		return "the stack pointer moves first";
	for (int a = 0; a < ARG_COUNT; a++)
		if (state->needed[a] && !state->holders[a])
			return "an argument is overwritten first";
	return NULL;
}

/* The register the argument came in, if it is still there, else the lowest that holds it. */
static uint8_t state_register(const struct state *state, enum argument a)
{
	uint16_t holders = state->holders[a];

	if (!state->needed[a])
		return 0;
	if (holders & state->needed[a])
		holders = state->needed[a];
	return (uint8_t)__builtin_ctz(holders);
}

static void state_init(struct state *state, const struct catalog_function *function)
{
	const signed char args[ARG_COUNT] = {
		[ARG_SIZE] = function->size_arg,
		[ARG_AUX] = function->aux_arg,
		[ARG_PTR] = function->ptr_arg,
	};

	*state = (struct state){.tested = NO_REGISTER};
	for (int a = 0; a < ARG_COUNT; a++)
		if (args[a] != CATALOG_NO_ARG)
			state->needed[a] = 1u << catalog_arg_register(args[a]);
	for (int a = 0; a < ARG_COUNT; a++)
		state->holders[a] = state->needed[a];
}

/* Whether a direct jump of the function leads to (0, offset]; also where its code is not clear. */
static bool is_jumped_into(const ZydisDecoder *decoder, const uint8_t *code, size_t size,
			   size_t offset)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;

	for (size_t pos = 0; offset && pos < size; pos += insn.length) {
		ZyanU64 target;

		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder, code + pos, size - pos, &insn,
							 operands)))
			return true;
		if (insn.meta.category != ZYDIS_CATEGORY_COND_BR &&
		    insn.meta.category != ZYDIS_CATEGORY_UNCOND_BR)
			continue;
		if (operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE ||
		    !ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&insn, &operands[0], pos, &target)))
			continue;
		if (target > 0 && target <= offset)
			return true;
	}
	return false;
}

static bool is_je(const uint8_t *code)
{
	return code[0] == 0x74 || (code[0] == 0x0f && code[1] == 0x84);
}

static void fill(struct placement *placement, const struct state *state, size_t offset,
		 const char *why_entry)
{
	*placement = (struct placement){
		.offset = (uint32_t)offset,
		.size_reg = state_register(state, ARG_SIZE),
		.aux_reg = state_register(state, ARG_AUX),
		.ptr_reg = state_register(state, ARG_PTR),
		.why_entry = why_entry,
	};
}

struct placement placement_choose(const uint8_t *code, size_t size,
				  const struct catalog_function *function)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	const char *why = size ? NULL : "the function's size is not known";
	bool null_passed =
		false; /* *placement is the `je` of a NULL test, something better may follow */
	ZydisDecodedInstruction insn;
	struct placement placement;
	ZydisDecoder decoder;
	struct state state;
	size_t pos = 0;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	state_init(&state, function);
	fill(&placement, &state, 0, NULL);
	while (!why) {
		if (pos >= size || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(
					   &decoder, code + pos, size - pos, &insn, operands))) {
			why = "no instruction that the kernel emulates";
			break;
		}
		if (is_emulated(code + pos, insn.length)) {
			why = state_refusal(&state);
			if (!why && is_jumped_into(&decoder, code, size, pos))
				why = "a jump leads into the function's start";
			if (why)
				break;
			fill(&placement, &state, pos, NULL);
			if (null_passed || function->kind != PROBE_FREE || !is_je(code + pos) ||
			    state.tested == NO_REGISTER ||
			    !(state.holders[ARG_PTR] >> state.tested & 1))
				return placement;
			null_passed = true;
		} else if (insn.meta.category == ZYDIS_CATEGORY_RET ||
			   insn.meta.category == ZYDIS_CATEGORY_COND_BR ||
			   insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
			   insn.meta.category == ZYDIS_CATEGORY_CALL ||
			   insn.meta.category == ZYDIS_CATEGORY_SYSCALL ||
			   insn.meta.category == ZYDIS_CATEGORY_INTERRUPT) {
			why = "the straight line ends first";
			break;
		}
		state_step(&state, &insn, operands);
		pos += insn.length;
	}
	if (!null_passed)
		placement.why_entry = why;
	return placement;
}
