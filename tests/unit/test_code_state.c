/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* code_state: what instructions do to what is known about registers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "probe/code_state.h"
#include "util/cleanup.h"

#define RAX 0
#define RCX 1
#define RBX 3

static ZydisDecoder decoder;

static int setup(void **state)
{
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	return 0;
}

/* Steps over all instructions in code. */
static void run(struct code_state *state, const char *code, size_t size, uint16_t variable)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;

	while (size) {
		assert_true(ZYAN_SUCCESS(
			ZydisDecoderDecodeFull(&decoder, code, size, &insn, operands)));
		code_state_step(state, &insn, operands, variable);
		code += insn.length;
		size -= insn.length;
	}
}

#define RUN(state, code) run(state, code, sizeof(code) - 1, CODE_STATE_NO_VARIABLE)

enum result { UNKNOWN, ZERO, CONSTANT };

static enum result result_of(const struct code_state *state)
{
	bool zero = false;

	if (!code_state_returns_constant(state, &zero))
		return UNKNOWN;
	return zero ? ZERO : CONSTANT;
}

static void test_constants(void **state)
{
	static const struct {
		const char *code;
		size_t size;
		enum result result;
	} cases[] = {
#define CASE(code, result) {code, sizeof(code) - 1, result}
		CASE("\x31\xc0", ZERO),				/* xor %eax,%eax */
		CASE("\x48\x31\xc0", ZERO),			/* xor %rax,%rax */
		CASE("\x29\xc0", ZERO),				/* sub %eax,%eax */
		CASE("\x30\xc0", UNKNOWN),			/* xor %al,%al */
		CASE("\x66\x31\xc0", UNKNOWN),			/* xor %ax,%ax */
		CASE("\x31\xc8", UNKNOWN),			/* xor %ecx,%eax */
		CASE("\xb8\x00\x00\x00\x00", ZERO),		/* mov $0,%eax */
		CASE("\xb8\x16\x00\x00\x00", CONSTANT),		/* mov $22,%eax */
		CASE("\xb8\xff\x0f\x00\x00", CONSTANT),		/* mov $4095,%eax */
		CASE("\xb8\x00\x10\x00\x00", UNKNOWN),		/* mov $4096,%eax */
		CASE("\xb8\xf4\xff\xff\xff", CONSTANT),		/* mov $-12,%eax */
		CASE("\x48\xc7\xc0\xff\xff\xff\xff", CONSTANT), /* mov $-1,%rax */
		CASE("\xb8\x40\x40\x40\x00", UNKNOWN),		/* mov $0x404040,%eax */
		CASE("\xb0\x00", UNKNOWN),			/* mov $0,%al */
		CASE("\x66\xb8\x00\x00", UNKNOWN),		/* mov $0,%ax */
		CASE("\x48\x83\xc8\xff", CONSTANT),		/* or $-1,%rax */
		CASE("\x83\xc8\x01", UNKNOWN),			/* or $1,%eax */
		CASE("\x31\xdb\x48\x89\xd8", ZERO),		/* xor %ebx,%ebx; mov %rbx,%rax */
		CASE("\x31\xdb\x88\xd8", UNKNOWN),		/* ...; mov %bl,%al */
		CASE("\x31\xc0\x48\x0f\x44\xc3", UNKNOWN),	/* ...; cmove %rbx,%rax */
		CASE("\x31\xc0\x0f\x94\xc0", UNKNOWN),		/* ...; sete %al */
		CASE("\x31\xc0\x48\x8b\x07", UNKNOWN),		/* ...; mov (%rdi),%rax */
		CASE("\x31\xc0\x48\x8d\x05\x10\x00\x00\x00", UNKNOWN), /* ...; lea (%rip),%rax */
		CASE("\x31\xc0\x48\xf7\xe6", UNKNOWN),		       /* ...; mul %rsi */
		CASE("\x31\xc0\x48\x99", ZERO),			       /* ...; cqo */
		CASE("\x31\xc0\x58", UNKNOWN),			       /* ...; pop %rax */
		CASE("\x31\xc0\x50", ZERO),			       /* ...; push %rax */
		CASE("\x31\xc0\x0f\xb1\x0f", UNKNOWN), /* ...; cmpxchg %ecx,(%rdi) */
		CASE("\x31\xc0\x87\x07", UNKNOWN),     /* ...; xchg %eax,(%rdi) */
		CASE("\x31\xc0\x85\xc0", ZERO),	       /* ...; test %eax,%eax */
		CASE("\x31\xc0\x89\x07", ZERO),	       /* ...; mov %eax,(%rdi) */
		CASE("\x90", UNKNOWN),		       /* nop */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct code_state known = {};

		run(&known, cases[i].code, cases[i].size, CODE_STATE_NO_VARIABLE);
		if (result_of(&known) != cases[i].result)
			fail_msg("case %zu is %d", i, result_of(&known));
	}
}

static void test_calls(void **state)
{
	struct code_state known = {};
	uint16_t variables = 1;

	RUN(&known, "\x31\xc0\x31\xdb\x31\xc9"); /* rax, rbx and rcx are 0 */
	code_state_call(&known, false, false);
	assert_int_equal(known.constants, 1u << RBX);
	assert_true(code_state_returns_other(&known));
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	RUN(&known, "\x48\x89\xc3"); /* mov %rax,%rbx */
	code_state_call(&known, true, true);
	assert_false(code_state_returns_other(&known));
	assert_true(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	assert_int_equal(variables, 0);
	RUN(&known, "\x48\x89\xd8"); /* mov %rbx,%rax */
	assert_true(code_state_returns_other(&known));
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	RUN(&known, "\x48\x83\xc0\x10"); /* add $16,%rax */
	assert_false(code_state_returns_other(&known));
}

static void test_pointers(void **state)
{
	struct code_state known = {};
	uint16_t variables = 0;

	run(&known, "\x48\x8b\x05\x00\x00\x00\x00", 7, 4); /* mov (%rip),%rax */
	assert_true(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	assert_int_equal(variables, 4);
	RUN(&known, "\x48\x89\xc3\x31\xc0"); /* mov %rax,%rbx; xor %eax,%eax */
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	assert_true(code_state_is_pointer(&known, ZYDIS_REGISTER_RBX, &variables));
	assert_int_equal(variables, 4);
	RUN(&known, "\x89\xd8"); /* mov %ebx,%eax */
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	run(&known, "\x8b\x0d\x00\x00\x00\x00", 6, 8); /* mov (%rip),%ecx */
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RCX, &variables));
	run(&known, "\x48\x8b\x1b", 3, CODE_STATE_NO_VARIABLE); /* mov (%rbx),%rbx */
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RBX, &variables));
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_XMM0, &variables));
}

static void test_joins(void **state)
{
	struct code_state known = {}, other = {}, again;
	uint16_t variables = 0;

	RUN(&known, "\x31\xc0\x31\xc9");     /* rax and rcx are 0 */
	RUN(&other, "\xb8\x16\x00\x00\x00"); /* rax is 22 */
	assert_true(code_state_join(&known, &other));
	assert_memory_equal(&known, &other, sizeof(known));
	assert_int_equal(known.constants, 1u << RAX);
	assert_int_equal(result_of(&known), ZERO);
	again = other;
	assert_false(code_state_join(&known, &again));
	/* A pointer of either variable. */
	memset(&known, 0, sizeof(known));
	memset(&other, 0, sizeof(other));
	run(&known, "\x48\x8b\x05\x00\x00\x00\x00", 7, 1);
	run(&other, "\x48\x8b\x05\x00\x00\x00\x00", 7, 2);
	assert_true(code_state_join(&known, &other));
	assert_true(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	assert_int_equal(variables, 3);
	assert_false(code_state_join(&known, &other));
	memset(&other, 0, sizeof(other));
	assert_true(code_state_join(&known, &other));
	assert_false(code_state_is_pointer(&known, ZYDIS_REGISTER_RAX, &variables));
	/* Nothing is left that could change. */
	assert_false(code_state_join(&known, &other));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_constants),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_joins),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
