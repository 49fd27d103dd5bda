/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DWARF expressions in call frame information.
 *
 * They are evaluated symbolically: a value is a constant, or a register plus offset, or what lies
 * at such an address, plus a constant. That covers a realigned stack (gcc's DRAP: CFA *(rbp-8),
 * rbp saved at rbp+0), signal frames (*(rsp+160)) and the assembly of OpenSSL (*(rsp+n)+8). The
 * PLT's expression, which depends on pc, is recognised by its bytes.
 */
#include "elf/cfi_program.h"

#define STACK_DEPTH 8

enum {
	OP_deref = 0x06,
	OP_const1u = 0x08,
	OP_const8s = 0x0f,
	OP_constu = 0x10,
	OP_consts = 0x11,
	OP_minus = 0x1c,
	OP_plus = 0x22,
	OP_plus_uconst = 0x23,
	OP_lit0 = 0x30,
	OP_lit31 = 0x4f,
	OP_breg0 = 0x70,
	OP_breg31 = 0x8f,
	OP_bregx = 0x92,
	OP_deref_size = 0x94,
	OP_nop = 0x96,
};

/* No DWARF register numbers. */
#define BASE_CONST (1ull << 63)
#define BASE_CFA   (BASE_CONST + 1)

/* base + offset; if deref, *(base + offset) + extra. Sums wrap around, as in the DWARF machine. */
struct value {
	uint64_t base;
	uint64_t offset;
	uint64_t extra;
	bool deref;
};

struct stack {
	struct value values[STACK_DEPTH];
	size_t depth;
	bool failed;
};

static void push(struct stack *stack, struct value value)
{
	if (stack->depth == STACK_DEPTH)
		stack->failed = true;
	else
		stack->values[stack->depth++] = value;
}

static struct value pop(struct stack *stack)
{
	if (stack->depth)
		return stack->values[--stack->depth];
	stack->failed = true;
	return (struct value){.base = BASE_CONST};
}

static void push_const(struct stack *stack, uint64_t n)
{
	push(stack, (struct value){.base = BASE_CONST, .offset = n});
}

static void add_const(struct stack *stack, uint64_t n)
{
	struct value value = pop(stack);

	if (value.deref)
		value.extra += n;
	else
		value.offset += n;
	push(stack, value);
}

static void deref(struct stack *stack)
{
	struct value value = pop(stack);

	if (value.deref || value.base == BASE_CONST)
		stack->failed = true;
	value.deref = true;
	push(stack, value);
}

/* One of the two must be a constant; a - b only with b constant. */
static void add(struct stack *stack, bool subtract)
{
	struct value b = pop(stack), a = pop(stack);

	if (b.base == BASE_CONST && !b.deref) {
		push(stack, a);
		add_const(stack, subtract ? -b.offset : b.offset);
	} else if (a.base == BASE_CONST && !a.deref && !subtract) {
		push(stack, b);
		add_const(stack, a.offset);
	} else {
		stack->failed = true;
	}
}

/* const1u, const1s, const2u ... const8s */
static void push_sized_const(struct stack *stack, struct cursor *c, uint8_t op)
{
	unsigned int size = 1u << (op - OP_const1u) / 2, shift = 64 - 8 * size;
	uint64_t n = cursor_uint(c, size);

	if (op & 1)
		n = (uint64_t)((int64_t)(n << shift) >> shift);
	push_const(stack, n);
}

static void push_register(struct stack *stack, uint64_t reg, int64_t offset)
{
	if (reg >= BASE_CONST)
		stack->failed = true;
	push(stack, (struct value){.base = reg, .offset = (uint64_t)offset});
}

static void step(struct stack *stack, struct cursor *c)
{
	uint8_t op = cursor_u8(c);
	uint64_t reg;

	switch (op) {
	case OP_deref:
		deref(stack);
		break;
	case OP_deref_size:
		if (cursor_u8(c) != 8)
			stack->failed = true;
		deref(stack);
		break;
	case OP_const1u ... OP_const8s:
		push_sized_const(stack, c, op);
		break;
	case OP_constu:
		push_const(stack, cursor_uleb128(c));
		break;
	case OP_consts:
		push_const(stack, (uint64_t)cursor_sleb128(c));
		break;
	case OP_plus:
	case OP_minus:
		add(stack, op == OP_minus);
		break;
	case OP_plus_uconst:
		add_const(stack, cursor_uleb128(c));
		break;
	case OP_lit0 ... OP_lit31:
		push_const(stack, op - OP_lit0);
		break;
	case OP_breg0 ... OP_breg31:
		push_register(stack, op - OP_breg0, cursor_sleb128(c));
		break;
	case OP_bregx:
		reg = cursor_uleb128(c);
		push_register(stack, reg, cursor_sleb128(c));
		break;
	case OP_nop:
		break;
	default:
		stack->failed = true;
	}
}

static bool evaluate(struct cursor c, struct stack *stack, struct value *ret)
{
	while (!stack->failed && !c.underflow && cursor_left(&c))
		step(stack, &c);
	if (stack->failed || c.underflow || !stack->depth)
		return false;
	*ret = stack->values[stack->depth - 1];
	return true;
}

/*
 * What ld writes for .plt: rsp + 8 + ((rip & 15) >= threshold) << 3, as the second half of an entry
 * has pushed an index. The threshold is 11, or 10 where the entry begins with endbr64.
 */
static bool match_plt(struct cursor c, int64_t *ret_threshold)
{
	static const uint8_t pattern[] = {0x77, 8,    0x80, 0,	  0x3f, 0x1a,
					  0x3b, 0x2a, 0x33, 0x24, 0x22};

	if (cursor_left(&c) != sizeof(pattern))
		return false;
	for (size_t i = 0; i < sizeof(pattern); i++)
		if (c.pos[i] != pattern[i] && !(i == 6 && c.pos[i] == OP_lit0 + 10))
			return false;
	*ret_threshold = c.pos[6] - OP_lit0;
	return true;
}

void cfi_expression_cfa(struct cursor expression, struct cfi_cfa *ret)
{
	struct stack stack = {};
	struct value value;
	int64_t threshold;

	*ret = (struct cfi_cfa){.kind = CFI_CFA_OTHER};
	if (match_plt(expression, &threshold))
		*ret = (struct cfi_cfa){CFI_CFA_PLT, CFI_REG_SP, 8, threshold};
	else if (evaluate(expression, &stack, &value) && value.base < BASE_CONST)
		*ret = (struct cfi_cfa){value.deref ? CFI_CFA_DEREF : CFI_CFA_REG, value.base,
					(int64_t)value.offset, (int64_t)value.extra};
}

/* A register saved at base + offset. */
static struct cfi_reg saved_at(uint64_t base, uint64_t offset)
{
	switch (base) {
	case BASE_CFA:
		return (struct cfi_reg){CFI_REG_AT_CFA, (int64_t)offset};
	case CFI_REG_BP:
		return (struct cfi_reg){CFI_REG_AT_BP, (int64_t)offset};
	case CFI_REG_SP:
		return (struct cfi_reg){CFI_REG_AT_SP, (int64_t)offset};
	default:
		return (struct cfi_reg){CFI_REG_OTHER, 0};
	}
}

void cfi_expression_reg(struct cursor expression, bool value, uint64_t reg, struct cfi_reg *ret)
{
	struct stack stack = {.values = {{.base = BASE_CFA}}, .depth = 1};
	struct value result;

	*ret = (struct cfi_reg){CFI_REG_OTHER, 0};
	if (!evaluate(expression, &stack, &result))
		return;
	if (!value && !result.deref)
		*ret = saved_at(result.base, result.offset);
	else if (value && result.deref && !result.extra)
		*ret = saved_at(result.base, result.offset);
	else if (value && !result.deref && result.base == reg && !result.offset)
		*ret = (struct cfi_reg){CFI_REG_SAME, 0};
}
