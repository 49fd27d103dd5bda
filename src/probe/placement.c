/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Probe placement.
 *
 * A uprobe costs some four times more where the kernel has to single-step the replaced instruction
 * than where it emulates it. So the function is decoded from its start up to the first instruction
 * of the emulated kind, and that one is taken if it is as good as the entry:
 *  - it is executed on every call, once: it comes before any branch, and no jump of the function
 *    leads to it or to an instruction before it other than the entry. A jump table might, unless
 *    this is a push: in compiled code no loop contains the prologue. That also goes for code
 *    outside the symbol (a .cold part), which is not looked at;
 *  - the stack pointer has not moved: [rsp] is still the return address;
 *  - the arguments needed are still in registers. Copies are followed, a written register is lost.
 * free() gets one branch more: behind `test ptr,ptr; je` the next such instruction sees only
 * non-NULL pointers, which saves the trap for free(NULL).
 *
 * Failing that it is the entry. If the kernel takes no probe there (it says so only when the code
 * is mapped, and to nobody), it is the first instruction at which it does.
 *
 * A jump of the function to its own entry looks like a call: nothing can be done about that here.
 */
#include "probe/placement.h"

#include <stdbool.h>
#include <Zydis/Zydis.h>

#define NO_REGISTER 0xff

enum { RCX = 1, RSP = 4, RSI = 6, RDI = 7 };

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

/*
 * What no kernel puts a probe on: the same file, is_prefix_bad() and good_insns_64. The table is
 * looked up by the opcode byte, also for VEX and EVEX; of the legacy two-byte opcodes it knows only
 * the 0f, so all of them pass.
 */
static bool is_refused(const ZydisDecodedInstruction *insn)
{
	for (size_t i = 0; i < insn->raw.prefix_count; i++)
		switch (insn->raw.prefixes[i].value) {
		case 0x26: /* es */
		case 0x2e: /* cs */
		case 0x36: /* ss */
		case 0x3e: /* ds, notrack */
		case 0xf0: /* lock */
			return true;
		}
	if (insn->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
	    insn->opcode_map != ZYDIS_OPCODE_MAP_DEFAULT)
		return false;
	switch (insn->opcode) {
	case 0x06 ... 0x07:
	case 0x0e:
	case 0x16 ... 0x17:
	case 0x1e ... 0x1f:
	case 0x27:
	case 0x2f:
	case 0x37:
	case 0x3f:
	case 0x60 ... 0x62:
	case 0x6c ... 0x6f: /* in legacy code ins and outs; in VEX code vmovdqa, vmovdqu */
	case 0x82:
	case 0x9a:
	case 0xcc ... 0xcf: /* int */
	case 0xd4 ... 0xd6:
	case 0xe4 ... 0xe7: /* in, out; vmovntdq */
	case 0xea:
	case 0xec ... 0xef: /* in, out; vpxor */
	case 0xf1:
	case 0xf4:
	case 0xfa ... 0xfb:
		return true;
	case 0x8e: /* mov to ss */
		return insn->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
		       insn->raw.modrm.reg == 2;
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

/* Bit r is set for every register r that the instruction writes, or might write. */
static uint16_t written_registers(const ZydisDecodedInstruction *insn,
				  const ZydisDecodedOperand *operands)
{
	uint16_t written = 0;

	for (size_t i = 0; i < insn->operand_count; i++) {
		uint8_t number;

		if (operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		number = gpr_number(operands[i].reg.value);
		if (number != NO_REGISTER)
			written |= 1u << number;
	}
	/* Zydis 4.0 leaves out the pointers of scas and cmps. */
	if (insn->meta.category == ZYDIS_CATEGORY_STRINGOP)
		written |= 1u << RCX | 1u << RSI | 1u << RDI;
	return written;
}

static bool is_register_pair(const ZydisDecodedInstruction *insn,
			     const ZydisDecodedOperand *operands, ZydisMnemonic mnemonic)
{
	return insn->mnemonic == mnemonic && is_gpr64(&operands[0]) && is_gpr64(&operands[1]);
}

static void state_step(struct state *state, const ZydisDecodedInstruction *insn,
		       const ZydisDecodedOperand *operands)
{
	uint16_t copied[ARG_COUNT] = {};
	uint16_t written = written_registers(insn, operands);
	bool is_exchange = is_register_pair(insn, operands, ZYDIS_MNEMONIC_XCHG);

	state->tested = NO_REGISTER;
	if (is_register_pair(insn, operands, ZYDIS_MNEMONIC_TEST) &&
	    operands[0].reg.value == operands[1].reg.value)
		state->tested = gpr_number(operands[0].reg.value);
	if (is_exchange || is_register_pair(insn, operands, ZYDIS_MNEMONIC_MOV)) {
		uint8_t target = gpr_number(operands[0].reg.value);
		uint8_t source = gpr_number(operands[1].reg.value);

		for (int a = 0; a < ARG_COUNT; a++) {
			copied[a] = (state->holders[a] >> source & 1) << target;
			if (is_exchange)
				copied[a] |= (state->holders[a] >> target & 1) << source;
		}
	}
	state->stack_moved |= written >> RSP & 1;
	for (int a = 0; a < ARG_COUNT; a++)
		state->holders[a] = (state->holders[a] & ~written) | copied[a];
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

/*
 * Whether a jump through a register or memory may be by a jump table. A tail call goes through a
 * pointer: one passed in, or loaded or made as a whole. Bit r of `pointers` is set for registers
 * that were last written so. A table's element is found by an index, and in position-independent
 * code an address is added to it.
 */
static bool is_table_jump(const ZydisDecodedOperand *target, uint16_t pointers)
{
	uint8_t number;

	if (target->type == ZYDIS_OPERAND_TYPE_MEMORY)
		return target->mem.index != ZYDIS_REGISTER_NONE;
	if (target->type != ZYDIS_OPERAND_TYPE_REGISTER)
		return false;
	number = gpr_number(target->reg.value);
	return number == NO_REGISTER || !(pointers >> number & 1);
}

static uint16_t pointers_step(uint16_t pointers, const ZydisDecodedInstruction *insn,
			      const ZydisDecodedOperand *operands)
{
	bool makes = insn->mnemonic == ZYDIS_MNEMONIC_MOV || insn->mnemonic == ZYDIS_MNEMONIC_LEA ||
		     insn->mnemonic == ZYDIS_MNEMONIC_POP;

	if (makes && is_gpr64(&operands[0])) {
		const ZydisDecodedOperand *source = &operands[1];
		uint16_t target = 1u << gpr_number(operands[0].reg.value);

		if (insn->mnemonic == ZYDIS_MNEMONIC_MOV && is_gpr64(source))
			makes = pointers >> gpr_number(source->reg.value) & 1;
		else if (insn->mnemonic == ZYDIS_MNEMONIC_LEA)
			makes = source->mem.base == ZYDIS_REGISTER_RIP;
		else if (source->type == ZYDIS_OPERAND_TYPE_MEMORY)
			makes = source->mem.index == ZYDIS_REGISTER_NONE;
		return makes ? pointers | target : pointers & ~target;
	}
	/* A call may change what it likes, but nothing jumps to a register it left behind. */
	return pointers & ~written_registers(insn, operands);
}

/* Whether the instruction jumps to, calls or takes an address in (0, offset]. */
static bool leads_into(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
		       size_t pos, size_t offset)
{
	const ZydisDecodedOperand *operand = &operands[0];
	ZyanU64 target;

	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
		if (operand->type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
			return false;
		break;
	default:
		operand = &operands[1];
		if (insn->mnemonic != ZYDIS_MNEMONIC_LEA || operand->mem.base != ZYDIS_REGISTER_RIP)
			return false;
	}
	return ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, operand, pos, &target)) && target > 0 &&
	       target <= offset;
}

static bool is_push(const uint8_t *code, size_t size)
{
	if (size > 1 && code[0] == 0x41)
		code++;
	return code[0] >= 0x50 && code[0] <= 0x57;
}

/*
 * Why the instruction at offset may be reached otherwise than from the entry straight ahead; NULL
 * if it is not. The function is read from its start to its end, as it lies.
 */
static const char *jump_refusal(const ZydisDecoder *decoder, const uint8_t *code, size_t size,
				size_t offset)
{
	bool is_prologue = is_push(code + offset, size - offset);
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	uint16_t pointers = 0xffff; /* a register not written yet was passed in */

	for (size_t pos = 0; offset && pos < size; pos += insn.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder, code + pos, size - pos, &insn,
							 operands)))
			return "the function cannot be decoded to its end";
		if (leads_into(&insn, operands, pos, offset))
			return "a jump leads into the function's start";
		if (!is_prologue && insn.mnemonic == ZYDIS_MNEMONIC_JMP &&
		    is_table_jump(&operands[0], pointers))
			return "a jump table may lead into the function's start";
		pointers = pointers_step(pointers, &insn, operands);
	}
	return NULL;
}

static bool ends_straight_line(const ZydisDecodedInstruction *insn)
{
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_INTERRUPT:
		return true;
	default:
		return false;
	}
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

/* Whether behind this instruction, which the kernel emulates, the pointer is not NULL. */
static bool is_null_test(const uint8_t *code, const struct state *state)
{
	return is_je(code) && state->tested != NO_REGISTER &&
	       state->holders[ARG_PTR] >> state->tested & 1;
}

struct placement placement_choose(const uint8_t *code, size_t size,
				  const struct catalog_function *function)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	const char *why = size ? NULL : "the function's size is not known";
	/* *placement is the `je` of a NULL test, something better may follow. */
	bool null_passed = false;
	bool substitute_sought = false; /* for an entry that the kernel refuses */
	ZydisDecodedInstruction insn;
	struct placement placement;
	ZydisDecoder decoder;
	struct state state;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	state_init(&state, function);
	fill(&placement, &state, 0, NULL);
	for (size_t pos = 0; !why; pos += insn.length) {
		if (pos >= size || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(
					   &decoder, code + pos, size - pos, &insn, operands))) {
			why = "no instruction that the kernel emulates";
			break;
		}
		if (is_emulated(code + pos, insn.length)) {
			why = state_refusal(&state);
			if (!why)
				why = jump_refusal(&decoder, code, size, pos);
			if (why)
				break;
			fill(&placement, &state, pos, NULL);
			if (null_passed || function->kind != PROBE_FREE ||
			    !is_null_test(code + pos, &state))
				return placement;
			null_passed = substitute_sought = true;
		} else {
			if (!substitute_sought && !is_refused(&insn)) {
				substitute_sought = true;
				if (!state_refusal(&state) &&
				    !jump_refusal(&decoder, code, size, pos))
					fill(&placement, &state, pos, NULL);
			}
			if (ends_straight_line(&insn))
				why = "the straight line ends first";
		}
		state_step(&state, &insn, operands);
	}
	if (!null_passed)
		placement.why_entry = why;
	return placement;
}
