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
	/* xchg rsi,rdi; jmp: as in memalign at -Os */
	p = choose("memalign", CODE(0x48, 0x87, 0xfe, 0xe9, 0, 0, 0, 0));
	assert_int_equal(p.offset, 3);
	assert_int_equal(p.size_reg, RDI);
	assert_int_equal(p.aux_reg, RSI);
	/* xchg rdi,rax; push rbp: the short form */
	p = choose("free", CODE(0x48, 0x97, 0x55, 0xc3));
	assert_int_equal(p.offset, 2);
	assert_int_equal(p.ptr_reg, RAX);
}

static void check_entry(const char *name, const uint8_t *code, size_t size)
{
	struct placement p = choose(name, code, size);

	assert_int_equal(p.offset, 0);
	assert_non_null(p.why_entry);
	p.size_reg |= p.ptr_reg;
	if (function(name)->kind == PROBE_CALLOC)
		assert_int_equal(p.size_reg, RSI);
	else if (function(name)->kind == PROBE_OUT_ALLOC)
		assert_int_equal(p.size_reg, RDX | RDI);
	else
		assert_int_equal(p.size_reg, RDI);
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
	/* xchg edi,eax; push rbp: only its half comes back */
	check_entry("free", CODE(0x97, 0x55, 0xc3));
	/* repne scasb, repe cmpsb, rep movsb, rep stosb, lodsb: all move pointers; push rbp */
	check_entry("malloc", CODE(0xf2, 0xae, 0x55, 0xc3));
	check_entry("malloc", CODE(0xf3, 0xa6, 0x55, 0xc3));
	check_entry("calloc", CODE(0xf3, 0xa6, 0x55, 0xc3));
	check_entry("malloc", CODE(0xf3, 0xa4, 0x55, 0xc3));
	check_entry("malloc", CODE(0xf3, 0xaa, 0x55, 0xc3));
	check_entry("calloc", CODE(0xac, 0x55, 0xc3));
	/* cmpxchg16b [rdi]; push rbp: perhaps writes rdx */
	check_entry("posix_memalign", CODE(0x48, 0x0f, 0xc7, 0x0f, 0x55, 0xc3));
	/* mulx rax,rdi,rdx; push rbp */
	check_entry("malloc", CODE(0xc4, 0xe2, 0xc3, 0xf6, 0xc2, 0x55, 0xc3));
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
	/* test; push rbp; call: to the push */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0xe8, 0xfa, 0xff, 0xff, 0xff, 0xc3));
	/* test; push rbp; lea rax,[the push]: its address might be jumped to; not so the entry's */
	check_entry("malloc",
		    CODE(0x48, 0x85, 0xff, 0x55, 0x48, 0x8d, 0x05, 0xf8, 0xff, 0xff, 0xff, 0xc3));
	assert_int_equal(choose("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0x48, 0x8d, 0x05, 0xf5, 0xff,
					       0xff, 0xff, 0xc3))
				 .offset,
			 3);
	/* code that cannot be decoded behind the point might hold any jump */
	check_entry("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0x06));
}

/* cmp edi,7; ja +0: a point, if nothing behind it speaks against it. */
#define CHECKED 0x83, 0xff, 0x07, 0x77, 0x00

static void test_jump_tables(void **state)
{
	/* lea rdx,[table]; movslq rax,[rdx+rdi*4]; add rax,rdx; jmp rax: position-independent */
	check_entry("malloc", CODE(CHECKED, 0x48, 0x8d, 0x15, 0, 1, 0, 0, 0x48, 0x63, 0x04, 0xba,
				   0x48, 0x01, 0xd0, 0xff, 0xe0));
	/* the same with CET: notrack jmp rax */
	check_entry("malloc", CODE(CHECKED, 0x48, 0x8d, 0x15, 0, 1, 0, 0, 0x48, 0x63, 0x04, 0xba,
				   0x48, 0x01, 0xd0, 0x3e, 0xff, 0xe0));
	/* jmp [table+rdi*8] */
	check_entry("malloc", CODE(CHECKED, 0xff, 0x24, 0xfd, 0, 0, 0x40, 0));
	/* mov rax,[table+rdi*8]; jmp rax */
	check_entry("malloc", CODE(CHECKED, 0x48, 0x8b, 0x04, 0xfd, 0, 0, 0x40, 0, 0xff, 0xe0));
	/* the same by way of mov rcx,rax; jmp rcx */
	check_entry("malloc", CODE(CHECKED, 0x48, 0x8b, 0x04, 0xfd, 0, 0, 0x40, 0, 0x48, 0x89, 0xc1,
				   0xff, 0xe1));
	/* push rbp; the table: no loop contains a prologue */
	assert_int_equal(
		choose("malloc", CODE(0x48, 0x85, 0xff, 0x55, 0xff, 0x24, 0xfd, 0, 0, 0x40, 0))
			.offset,
		3);
	/* push r12 */
	assert_int_equal(choose("malloc",
				CODE(0x48, 0x85, 0xff, 0x41, 0x54, 0xff, 0x24, 0xfd, 0, 0, 0x40, 0))
				 .offset,
			 3);
	/* the point is the entry */
	assert_null(choose("malloc", CODE(0x77, 0x00, 0xff, 0x24, 0xfd, 0, 0, 0x40, 0)).why_entry);
}

static void test_tail_calls_by_pointer(void **state)
{
	/* jmp [rip+hook] */
	assert_int_equal(choose("malloc", CODE(CHECKED, 0xff, 0x25, 0, 1, 0, 0)).offset, 3);
	/* jmp [rax+16]: of a table of methods */
	assert_int_equal(choose("malloc", CODE(CHECKED, 0xff, 0x60, 0x10)).offset, 3);
	/* mov rax,[rip+hook]; jmp rax */
	assert_int_equal(
		choose("malloc", CODE(CHECKED, 0x48, 0x8b, 0x05, 0, 1, 0, 0, 0xff, 0xe0)).offset,
		3);
	/* mov rax,[rip+hook]; mov rcx,rax; jmp rcx */
	assert_int_equal(choose("malloc", CODE(CHECKED, 0x48, 0x8b, 0x05, 0, 1, 0, 0, 0x48, 0x89,
					       0xc1, 0xff, 0xe1))
				 .offset,
			 3);
	/* lea rax,[rip+function]; jmp rax */
	assert_int_equal(
		choose("malloc", CODE(CHECKED, 0x48, 0x8d, 0x05, 0, 1, 0, 0, 0xff, 0xe0)).offset,
		3);
	/* pop rax; jmp rax; jmp rsi: passed in */
	assert_int_equal(choose("malloc", CODE(CHECKED, 0x58, 0xff, 0xe0)).offset, 3);
	assert_int_equal(choose("malloc", CODE(CHECKED, 0xff, 0xe6)).offset, 3);
}

static void check_substitute(const uint8_t *code, size_t size, uint32_t offset)
{
	struct placement p = choose("malloc", code, size);

	assert_int_equal(p.offset, offset);
	assert_int_equal(p.size_reg, RDI);
	assert_non_null(p.why_entry);
}

static void test_refused_entry(void **state)
{
	/* lock inc [rip+0]; sub rsp,8; ret */
	check_substitute(
		CODE(0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0x48, 0x83, 0xec, 0x08, 0x53, 0xc3), 8);
	/* cs nopw; lock inc [rip+0]; ret */
	check_substitute(CODE(0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xf0, 0x48, 0xff, 0x05,
			      0, 0, 0, 0, 0xc3),
			 18);
	/* vpxor xmm0,xmm0,xmm0; sub rsp,8: the kernel takes its last byte but one for in */
	check_substitute(CODE(0xc5, 0xf9, 0xef, 0xc0, 0x48, 0x83, 0xec, 0x08, 0xc3), 4);
	/* an emulated one behind it is better: push rbp; and so for free, je */
	assert_null(choose("malloc", CODE(0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0x55)).why_entry);
	assert_int_equal(choose("free", CODE(0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0x48, 0x85, 0xff,
					     0x74, 0x00, 0xc3))
				 .offset,
			 11);
	/* none can be had: lock xadd [rip+0],rdi; sub rsp,8; a jump to it; the code ends */
	check_entry("malloc",
		    CODE(0xf0, 0x48, 0x0f, 0xc1, 0x3d, 0, 0, 0, 0, 0x48, 0x83, 0xec, 8, 0xc3));
	check_entry("malloc",
		    CODE(0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0x80, 0x3f, 0, 0x75, 0xfb, 0xc3));
	check_entry("malloc", CODE(0xf0, 0x48, 0xff, 0x05, 0, 0, 0, 0));
	/* what it takes: pxor, endbr64, test, mfence, vpxor's relative vmovups */
	check_entry("malloc", CODE(0x66, 0x0f, 0xef, 0xc0, 0x48, 0x83, 0xec, 0x08, 0xc3));
	check_entry("malloc", CODE(0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0xc3));
	check_entry("malloc", CODE(0x0f, 0xae, 0xf0, 0x48, 0x83, 0xec, 0x08, 0xc3));
	check_entry("malloc", CODE(0xc5, 0xf8, 0x10, 0x07, 0x48, 0x83, 0xec, 0x08, 0xc3));
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
		cmocka_unit_test(test_entry_is_best),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_moved_arguments),
		cmocka_unit_test(test_lost_arguments),
		cmocka_unit_test(test_stack_moved),
		cmocka_unit_test(test_not_emulated),
		cmocka_unit_test(test_jumps_into_start),
		cmocka_unit_test(test_free_null),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_jump_tables),
		cmocka_unit_test(test_tail_calls_by_pointer),
		cmocka_unit_test(test_refused_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
