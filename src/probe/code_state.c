/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/code_state.h"

#include <stddef.h>

#define RAX 0
/* rbx, rbp, r12 to r15: the System V ABI has calls preserve them. */
#define PRESERVED ((uint16_t)(1u << 3 | 1u << 5 | 0xfu << 12))

/* Further from 0 than error numbers are, a constant may be an address. */
#define MAX_CONSTANT 4095

/* Its number, or -1 if it is no general register. */
static int register_number(ZydisRegister reg)
{
	ZydisRegister large = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

	if (ZydisRegisterGetClass(large) != ZYDIS_REGCLASS_GPR64)
		return -1;
	return ZydisRegisterGetId(large);
}

/* One bit, or 0 if it is no general register. */
static uint16_t register_bit(ZydisRegister reg)
{
	int number = register_number(reg);

	return number < 0 ? 0 : 1u << number;
}

static uint16_t operand_bit(const ZydisDecodedOperand *operand)
{
	return operand->type == ZYDIS_OPERAND_TYPE_REGISTER ? register_bit(operand->reg.value) : 0;
}

static bool is_small(uint64_t value)
{
	return value + MAX_CONSTANT <= 2 * MAX_CONSTANT ||
	       (value <= UINT32_MAX && value >= UINT32_MAX + 1ull - MAX_CONSTANT);
}

/* Whether an instruction puts a constant into its first operand. */
static bool makes_constant(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
			   bool *zero)
{
	*zero = false;
	switch (insn->mnemonic) {
	case ZYDIS_MNEMONIC_MOV:
		*zero = operands[1].imm.value.u == 0;
		return operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
		       is_small(operands[1].imm.value.u);
	case ZYDIS_MNEMONIC_XOR:
	case ZYDIS_MNEMONIC_SUB:
		*zero = true;
		return operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		       operands[0].reg.value == operands[1].reg.value;
	case ZYDIS_MNEMONIC_OR:
		return operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
		       operands[1].imm.value.s == -1;
	default:
		return false;
	}
}

void code_state_step(struct code_state *state, const ZydisDecodedInstruction *insn,
		     const ZydisDecodedOperand *operands, uint16_t variable)
{
	uint16_t constants = 0, zeros = 0, pointers = 0, variables = 0, results = 0, to = 0;
	bool zero;

	/* What writes a part of a register leaves the rest as it was. */
	if (insn->operand_count && operands[0].size >= 32)
		to = operand_bit(&operands[0]);
	if (to && insn->operand_count > 1) {
		uint16_t from = operand_bit(&operands[1]);

		if (makes_constant(insn, operands, &zero)) {
			constants = to;
			zeros = zero ? to : 0;
		}
		if (insn->mnemonic == ZYDIS_MNEMONIC_MOV) {
			if (state->constants & from) {
				constants = to;
				zeros = state->zeros & from ? to : 0;
			}
			if (state->results & from && operands[0].size == 64)
				results = to;
			if (state->pointers & from && operands[0].size == 64) {
				pointers = to;
				variables =
					state->variables[register_number(operands[1].reg.value)];
			}
			if (variable != CODE_STATE_NO_VARIABLE && operands[1].size == 64) {
				pointers = to;
				variables = variable;
			}
		}
	}
	for (size_t i = 0; i < insn->operand_count; i++) {
		uint16_t written = operand_bit(&operands[i]);

		if (!(operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		state->constants &= ~written;
		state->zeros &= ~written;
		state->pointers &= ~written;
		state->results &= ~written;
	}
	state->constants |= constants;
	state->zeros |= zeros;
	state->pointers |= pointers;
	state->results |= results;
	if (pointers)
		state->variables[register_number(operands[0].reg.value)] = variables;
}

void code_state_call(struct code_state *state, bool is_dlsym, bool passes)
{
	state->constants &= PRESERVED;
	state->pointers &= PRESERVED;
	state->results &= PRESERVED;
	if (!passes)
		state->results |= 1u << RAX;
	if (is_dlsym) {
		state->pointers |= 1u << RAX;
		state->variables[RAX] = 0;
	}
}

bool code_state_is_pointer(const struct code_state *state, ZydisRegister reg,
			   uint16_t *ret_variables)
{
	if (!(state->pointers & register_bit(reg)))
		return false;
	*ret_variables = state->variables[register_number(reg)];
	return true;
}

bool code_state_returns_other(const struct code_state *state)
{
	return state->results & 1u << RAX;
}

bool code_state_returns_constant(const struct code_state *state, bool *ret_zero)
{
	*ret_zero = state->zeros & 1u << RAX;
	return state->constants & 1u << RAX;
}

bool code_state_join(struct code_state *known, struct code_state *state)
{
	uint16_t constants = known->constants & state->constants;
	uint16_t zeros = (known->zeros | state->zeros) & constants;
	uint16_t pointers = known->pointers & state->pointers;
	uint16_t results = known->results & state->results;
	bool changed = results != known->results || constants != known->constants ||
		       zeros != known->zeros || pointers != known->pointers;

	for (size_t i = 0; i < sizeof(known->variables) / sizeof(known->variables[0]); i++) {
		uint16_t variables = known->variables[i] | state->variables[i];

		changed |= pointers >> i & 1 && variables != known->variables[i];
		known->variables[i] = state->variables[i] = variables;
	}
	known->zeros = state->zeros = zeros;
	known->constants = state->constants = constants;
	known->pointers = state->pointers = pointers;
	known->results = state->results = results;
	return changed;
}
