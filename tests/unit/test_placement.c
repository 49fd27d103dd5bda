/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* placement: short functions written byte by byte, each for one rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "probe/placement.h"
#include "util/cleanup.h"

#define RAX 0
#define RCX 1
#define RDX 2
#define RBX 3
#define RSI 6
#define RDI 7

#define CODE(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static const struct catalog_function *function(const char *name)
{
	for (size_t i = 0; i < catalog_function_count; i++)
		if (!strcmp(catalog_functions[i].name, name))
			return &catalog_functions[i];
	fail();
	return NULL;
}

static struct placement choose(const char *name, const uint8_t *code, size_t size)
{
	return placement_choose(code, size, function(name));
}

static void test_entry_is_best(void **state)
{
	struct placement p;

	/* push r12; ret */
	p = choose("malloc", CODE(0x41, 0x54, 0xc3));
	assert_int_equal(p.offset, 0);
	assert_int_equal(p.size_reg, RDI);
	assert_int_equal(p.aux_reg, 0);
	assert_int_equal(p.ptr_reg, 0);
	assert_null(p.why_entry);
	/* nop; ret */
	assert_null(choose("malloc", CODE(0x90, 0xc3)).why_entry);
	/* jmp +0; ret */
	assert_null(choose("malloc", CODE(0xe9, 0, 0, 0, 0, 0xc3)).why_entry);
	/* call +0; ret */
	assert_null(choose("malloc", CODE(0xe8, 0, 0, 0, 0, 0xc3)).why_entry);
}

static void test_arguments(void **state)
{
	/* endbr64; push rbp; ret */
	static const uint8_t code[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3};
	struct placement p = choose("calloc", code, sizeof(code));

	assert_int_equal(p.offset, 4);
	assert_int_equal(p.aux_reg, RDI);
	assert_int_equal(p.size_reg, RSI);
	p = choose("realloc", code, sizeof(code));
	assert_int_equal(p.ptr_reg, RDI);
	assert_int_equal(p.size_reg, RSI);
	p = choose("memalign", code, sizeof(code));
	assert_int_equal(p.aux_reg, RDI);
	assert_int_equal(p.size_reg, RSI);
	p = choose("posix_memalign", code, sizeof(code));
	assert_int_equal(p.ptr_reg, RDI);
	assert_int_equal(p.aux_reg, RSI);
	assert_int_equal(p.size_reg, RDX);
	p = choose("free", code, sizeof(code));
	assert_int_equal(p.ptr_reg, RDI);
	assert_int_equal(p.offset, 4);
}

static void test_moved_arguments(void **state)
{
	/* mov rsi,rdi; mov rdi,[rip+0]; push rbp; ret: as in mimalloc */
	struct placement p =
		choose("malloc", CODE(0x48, 0x89, 0xfe, 0x48, 0x8b, 0x3d, 0, 0, 0, 0, 0x55, 0xc3));

	assert_int_equal(p.offset, 10);
	assert_int_equal(p.size_reg, RSI);
	assert_null(p.why_entry);
	/* mov rax,rdi; mov rcx,rax; xor eax,eax; xor edi,edi; push rbp: two copies on */
	p = choose("malloc",
		   CODE(0x48, 0x89, 0xf8, 0x48, 0x89, 0xc1, 0x31, 0xc0, 0x31, 0xff, 0x55, 0xc3));
	assert_int_equal(p.offset, 10);
	assert_int_equal(p.size_reg, RCX);
	/* mov rax,rdi; push rbp: the original place is preferred */
	p = choose("malloc", CODE(0x48, 0x89, 0xf8, 0x55, 0xc3));
	assert_int_equal(p.size_reg, RDI);
}

static void check_entry(const char *name, const uint8_t *code, size_t size)
{
	struct placement p = choose(name, code, size);

	assert_int_equal(p.offset, 0);
	assert_non_null(p.why_entry);
	assert_int_equal(p.ptr_reg | p.size_reg, function(name)->kind == PROBE_CALLOC ? RSI : RDI);
}

static void test_lost_arguments(void **state)
{
	/* mov edi,edi cuts the register; push rbp */
	check_entry("malloc", CODE(0x89, 0xff, 0x55, 0xc3));
	/* lea rdi,[rdi+8]; push rbp */
	check_entry("malloc", CODE(0x48, 0x8d, 0x7f, 0x08, 0x55, 0xc3));
	/* mov rax,rdi; mul rsi; mov rdi,rdx; push rbp: mul writes rax and rdx */
	check_entry("calloc",
		    CODE(0x48, 0x89, 0xf8, 0x48, 0xf7, 0xe6, 0x48, 0x89, 0xd7, 0x55, 0xc3));
	/* mov eax,edi (half a copy); xor edi,edi; push rbp */
	check_entry("malloc", CODE(0x89, 0xf8, 0x31, 0xff, 0x55, 0xc3));
	/* cmovne rdi,rax; push rbp: perhaps written */
	check_entry("malloc", CODE(0x48, 0x0f, 0x45, 0xf8, 0x55, 0xc3));
	/* xchg rdi,rax; push rbp */
	check_entry("free", CODE(0x48, 0x97, 0x55, 0xc3));
}

static void test_stack_moved(void **state)
{
	/* sub rsp,8; push rbx */
	check_entry("malloc", CODE(0x48, 0x83, 0xec, 0x08, 0x53, 0xc3));
	/* push imm8 is single-stepped and moves it as well; push rbx */
	check_entry("malloc", CODE(0x6a, 0x01, 0x53, 0xc3));
	/* push [rdi]; push rbx */
	check_entry("malloc", CODE(0xff, 0x37, 0x53, 0xc3));
	/* lea rsp,[rsp-8]; push rbx */
	check_entry("malloc", CODE(0x48, 0x8d, 0x64, 0x24, 0xf8, 0x53, 0xc3));
}

static void test_not_emulated(void **state)
{
	/* rex.w push rbp; ret: the kernel knows push with 41 or without prefix only */
	check_entry("malloc", CODE(0x48, 0x55, 0xc3));
	/* test; ret; push rbp */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0xc3, 0x55));
	/* test; jmp *rax; push rbp */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0xff, 0xe0, 0x55));
	/* test; syscall; push rbp */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0x0f, 0x05, 0x55));
	/* test; nopw: emulated by 6.18 only; ret */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0x66, 0x90, 0xc3));
	/* nopw is passed over */
	assert_int_equal(choose("malloc", CODE(0x66, 0x90, 0x55, 0xc3)).offset, 2);
	/* not code at all; cut short; empty */
	check_entry("malloc", CODE(0x06));
	check_entry("malloc", CODE(0x48, 0x85));
	check_entry("malloc", NULL, 0);
}

static void test_jumps_into_start(void **state)
{
	/* test rdi,rdi; push rbp; nop; jne: to the push */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0x90, 0x75, 0xfc, 0xc3));
	/* the same to the entry: each pass is one more call, whatever the point */
	assert_int_equal(
		choose("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0x90, 0x75, 0xf9, 0xc3)).offset, 3);
	/* the same to the nop behind the point */
	assert_int_equal(
		choose("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0x90, 0x75, 0xfd, 0xc3)).offset, 3);
	/* test; mov rax,rdi; push rbp; jmp: between entry and point */
	check_entry("malloc",
		    CODE(0x48, 0x85, 0xff, 0x48, 0x89, 0xf8, 0x55, 0xe9, 0xf7, 0xff, 0xff, 0xff));
	/* the point is the entry: jumps to it do no harm */
	assert_null(choose("malloc", CODE(0x55, 0xeb, 0xfd)).why_entry);
	/* code that cannot be decoded behind the point might hold any jump */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0x06));
}

static void test_free_null(void **state)
{
	struct placement p;

	/* test rdi,rdi; je +5; lea rsi,[rdi-16]; push rbx; ret */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x74, 0x05, 0x48, 0x8d, 0x77, 0xf0, 0x53, 0xc3));
	assert_int_equal(p.offset, 9);
	assert_int_equal(p.ptr_reg, RDI);
	assert_null(p.why_entry);
	/* the je in its long form, a copy tested: mov rax,rdi; test rax,rax; je; push
	 */
	p = choose("free",
		   CODE(0x48, 0x89, 0xf8, 0x48, 0x85, 0xc0, 0x0f, 0x84, 1, 0, 0, 0, 0x53, 0xc3));
	assert_int_equal(p.offset, 12);
	/* test; je; xor edi,edi; push rbx: lost behind the je, so the je */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x74, 0x03, 0x31, 0xff, 0x53, 0xc3));
	assert_int_equal(p.offset, 3);
	assert_null(p.why_entry);
	/* test; je; sub rsp,8; push rbx */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x74, 0x05, 0x48, 0x83, 0xec, 0x08, 0x53, 0xc3));
	assert_int_equal(p.offset, 3);
	/* test; je; push rbx; jne to the push */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x74, 0x01, 0x53, 0x75, 0xfd, 0xc3));
	assert_int_equal(p.offset, 3);
	/* test; jne: what follows is the NULL path */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x75, 0x01, 0xc3, 0x53, 0xc3));
	assert_int_equal(p.offset, 3);
	/* test rsi,rsi says nothing about the pointer */
	p = choose("free", CODE(0x48, 0x85, 0xf6, 0x74, 0x01, 0x53, 0xc3));
	assert_int_equal(p.offset, 3);
	/* test edi,edi tells only half */
	p = choose("free", CODE(0x85, 0xff, 0x74, 0x01, 0x53, 0xc3));
	assert_int_equal(p.offset, 2);
	/* test and je not next to each other: cmp in between */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x48, 0x39, 0xf7, 0x74, 0x01, 0x53, 0xc3));
	assert_int_equal(p.offset, 6);
	/* a second je after the first one is used as it is */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x74, 0x07, 0x48, 0x85, 0xff, 0x74, 0x01, 0x53,
				0x90, 0xc3));
	assert_int_equal(p.offset, 8);
	/* only free() may leave calls out */
	p = choose("malloc", CODE(0x48, 0x85, 0xff, 0x74, 0x01, 0x53, 0xc3));
	assert_int_equal(p.offset, 3);
	/* test; je; ret */
	p = choose("free", CODE(0x48, 0x85, 0xff, 0x74, 0x00, 0xc3));
	assert_int_equal(p.offset, 3);
	assert_null(p.why_entry);
}

/* Any bytes give a point within the function, with registers set where it has arguments. */
static void test_any_bytes(void **state)
{
	uint64_t seed = 88172645463325252ull;
	uint8_t code[48];

	for (size_t n = 0; n < 100000; n++) {
		for (size_t i = 0; i < sizeof(code); i++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			code[i] = seed >> 32;
		}
		for (size_t i = 0; i < catalog_function_count; i++) {
			size_t size = seed % (sizeof(code) + 1);
			struct placement p = placement_choose(code, size, &catalog_functions[i]);

			assert_true(p.offset <= size);
			assert_true(p.size_reg < 16 && p.aux_reg < 16 && p.ptr_reg < 16);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entry_is_best),	 cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_moved_arguments),	 cmocka_unit_test(test_lost_arguments),
		cmocka_unit_test(test_stack_moved),	 cmocka_unit_test(test_not_emulated),
		cmocka_unit_test(test_jumps_into_start), cmocka_unit_test(test_free_null),
		cmocka_unit_test(test_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
