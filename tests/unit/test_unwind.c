/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel side's unwind step, compiled here, over a made-up stack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "unwind.bpf.h"

/* The target's memory: a stack, and code that ends in a call at CODE + 16. */
#define STACK	   0x7ffc00000000ull
#define CODE	   0x55d000000000ull
#define TRAMPOLINE 0x7fffffffe000ull

static uint64_t stack[64];
static uint8_t code[32];
static uint64_t hidden_slot, hidden_address;

static int unwind_read(void *to, __u32 size, __u64 address)
{
	if (address >= STACK && address + size <= STACK + sizeof(stack))
		memcpy(to, (char *)stack + (address - STACK), size);
	else if (address >= CODE && address + size <= CODE + sizeof(code))
		memcpy(to, code + (address - CODE), size);
	else
		return -14;
	return 0;
}

static int unwind_read_word(struct unwind_state *state, __u64 *to, __u64 address)
{
	return unwind_read(to, sizeof(*to), address);
}

__u64 unwind_recover(__u64 slot)
{
	return slot == hidden_slot ? hidden_address : 0;
}

static int setup(void **state)
{
	memset(stack, 0, sizeof(stack));
	memset(code, 0x90, sizeof(code));
	code[11] = 0xe8; /* call rel32, returns to CODE + 16 */
	hidden_slot = 0;
	return 0;
}

static struct unwind_state start(void)
{
	return (struct unwind_state){
		.pc = CODE, .sp = STACK, .bp = STACK + 64, .trampoline = TRAMPOLINE};
}

static void step_by_sp(void **state)
{
	struct unwind_state s = start();
	struct unwind_rule rule = {
		.cfa_kind = CFA_SP, .cfa_offset = 32, .bp_kind = BP_CFA, .bp_offset = -16};

	stack[3] = CODE + 16;
	stack[2] = 0x1234;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.pc, CODE + 15);
	assert_int_equal(s.sp, STACK + 32);
	assert_int_equal(s.bp, 0x1234);
}

static void step_by_bp_keeps_bp(void **state)
{
	struct unwind_state s = start();
	struct unwind_rule rule = {.cfa_kind = CFA_BP, .cfa_offset = 16, .bp_kind = BP_SAME};

	stack[9] = CODE + 16;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.sp, STACK + 80);
	assert_int_equal(s.bp, STACK + 64);
}

static void step_through_a_realigned_frame(void **state)
{
	struct unwind_state s = start();
	struct unwind_rule rule = {
		.cfa_kind = CFA_DEREF_BP, .cfa_offset = -8, .bp_kind = BP_DEREF_BP, .bp_offset = 0};

	stack[7] = STACK + 128; /* the saved CFA */
	stack[8] = 0x5678;
	stack[15] = CODE + 16;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.sp, STACK + 128);
	assert_int_equal(s.bp, 0x5678);
}

static void step_by_deref_sp(void **state)
{
	struct unwind_state s = start();
	struct unwind_rule rule = {.cfa_kind = CFA_DEREF_SP, .cfa_offset = 8, .cfa_extra = 8};

	stack[1] = STACK + 40;
	stack[5] = CODE + 16;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.sp, STACK + 48);
}

static void step_out_of_a_plt_stub(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_PLT, .cfa_extra = 11};
	struct unwind_state s = start();

	stack[0] = stack[1] = CODE + 16;
	s.pc = CODE + 10;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.sp, STACK + 8);
	s = start();
	s.pc = CODE + 11;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.sp, STACK + 16);
}

static void step_out_of_a_signal_handler(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_SIGNAL};
	struct unwind_state s = start();

	stack[5 + 10] = 0xb0b0;
	stack[5 + 15] = STACK + 400;
	stack[5 + 16] = CODE + 3;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.bp, 0xb0b0);
	assert_int_equal(s.sp, STACK + 400);
	/* The interrupted instruction itself: no call, no minus one. */
	assert_int_equal(s.pc, CODE + 3);
	assert_int_equal(s.interrupted, 1);
}

static void end_is_told_from_a_cut(void **state)
{
	struct unwind_state s = start();

	assert_int_equal(unwind_rule_step(&s, &(struct unwind_rule){.cfa_kind = CFA_END}),
			 STOP_END);
	assert_int_equal(unwind_rule_step(&s, &(struct unwind_rule){.cfa_kind = CFA_UNSUPPORTED}),
			 STOP_UNSUPPORTED);
	assert_int_equal(unwind_rule_step(&s, &(struct unwind_rule){.cfa_kind = CFA_GAP}),
			 STOP_NO_ROWS);
	/* A zero return address is how hand-made stacks begin. */
	assert_int_equal(
		unwind_rule_step(&s, &(struct unwind_rule){.cfa_kind = CFA_SP, .cfa_offset = 8}),
		STOP_END);
}

static void frames_must_grow(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_SP, .cfa_offset = 0};
	struct unwind_state s = start();

	assert_int_equal(unwind_rule_step(&s, &rule), STOP_BAD_FRAME);
	rule.cfa_offset = -64;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_BAD_FRAME);
	rule.cfa_offset = 12;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_BAD_FRAME);
}

static void unreadable_memory_is_a_fault(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_SP, .cfa_offset = 1 << 20};
	struct unwind_state s = start();

	assert_int_equal(unwind_rule_step(&s, &rule), STOP_FAULT);
}

static void junk_return_addresses_end_the_walk(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_SP, .cfa_offset = 8};
	struct unwind_state s = start();

	stack[0] = 17;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_NO_MAPPING);
	s = start();
	stack[0] = 1ull << 47;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_NO_MAPPING);
}

static void replaced_return_addresses_are_recovered(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_SP, .cfa_offset = 8};
	struct unwind_state s = start();

	stack[0] = TRAMPOLINE;
	hidden_slot = STACK;
	hidden_address = CODE + 16;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.pc, CODE + 15);
}

static void guessed_rules_are_checked(void **state)
{
	struct unwind_rule rule = {.cfa_kind = CFA_SP, .cfa_offset = 16, .guessed = 1};
	struct unwind_state s = start();

	stack[1] = CODE + 15; /* follows no call */
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_NO_ROWS);
	stack[1] = CODE + 16;
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_COUNT);
	assert_int_equal(s.guessed, 1);
	/* After a guess, 0 is no end. */
	rule = (struct unwind_rule){.cfa_kind = CFA_SP, .cfa_offset = 16};
	assert_int_equal(unwind_rule_step(&s, &rule), STOP_NO_ROWS);
	assert_int_equal(unwind_rule_step(&s, &(struct unwind_rule){.cfa_kind = CFA_END}),
			 STOP_END);
}

static void frame_pointer_step_is_checked(void **state)
{
	struct unwind_state s = start();

	stack[8] = STACK + 128;
	stack[9] = CODE + 16;
	assert_int_equal(unwind_frame_pointer(&s), STOP_COUNT);
	assert_int_equal(s.pc, CODE + 15);
	assert_int_equal(s.sp, STACK + 80);
	assert_int_equal(s.bp, STACK + 128);
	assert_int_equal(s.guessed, 1);

	s = start();
	stack[9] = CODE + 15; /* follows no call */
	assert_int_equal(unwind_frame_pointer(&s), STOP_NO_ROWS);
	stack[9] = CODE + 16;
	s.bp = STACK + 65;
	assert_int_equal(unwind_frame_pointer(&s), STOP_NO_ROWS);
	s.bp = STACK - 8;
	assert_int_equal(unwind_frame_pointer(&s), STOP_NO_ROWS);
	s.bp = STACK + UNWIND_MAX_FRAME_BYTES + 8;
	assert_int_equal(unwind_frame_pointer(&s), STOP_NO_ROWS);
	assert_int_equal(s.guessed, 0);
}

static void calls_through_registers_and_memory_are_calls(void **state)
{
	assert_true(unwind_follows_call(CODE + 16));
	memset(code, 0x90, sizeof(code));
	assert_false(unwind_follows_call(CODE + 16));
	code[14] = 0xff; /* call *%rax */
	code[15] = 0xd0;
	assert_true(unwind_follows_call(CODE + 16));
	memset(code, 0x90, sizeof(code));
	code[10] = 0xff; /* call *disp32(%rip) */
	code[11] = 0x15;
	assert_true(unwind_follows_call(CODE + 16));
	code[11] = 0x25; /* jmp *disp32(%rip) */
	assert_false(unwind_follows_call(CODE + 16));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(step_by_sp, setup),
		cmocka_unit_test_setup(step_by_bp_keeps_bp, setup),
		cmocka_unit_test_setup(step_through_a_realigned_frame, setup),
		cmocka_unit_test_setup(step_by_deref_sp, setup),
		cmocka_unit_test_setup(step_out_of_a_plt_stub, setup),
		cmocka_unit_test_setup(step_out_of_a_signal_handler, setup),
		cmocka_unit_test_setup(end_is_told_from_a_cut, setup),
		cmocka_unit_test_setup(frames_must_grow, setup),
		cmocka_unit_test_setup(unreadable_memory_is_a_fault, setup),
		cmocka_unit_test_setup(junk_return_addresses_end_the_walk, setup),
		cmocka_unit_test_setup(replaced_return_addresses_are_recovered, setup),
		cmocka_unit_test_setup(guessed_rules_are_checked, setup),
		cmocka_unit_test_setup(frame_pointer_step_is_checked, setup),
		cmocka_unit_test_setup(calls_through_registers_and_memory_are_calls, setup),
	};

	return cmocka_run_group_tests_name("unwind", tests, NULL, NULL);
}
