/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* flow: tail jumps, calls, and both through local functions. */
#include "elf_fixture.h"

#include "elf/symtab.h"
#include "probe/flow.h"

/* Labels r_* stand behind the calls that flow_trace() must find. */
static const char source[] =
	"	.macro func name\n"
	"	.balign 16\n"
	"	.globl \\name\n"
	"	.hidden \\name\n"
	"	.type \\name,@function\n"
	"	\\name: .cfi_startproc\n"
	"	.endm\n"
	"	.macro endfunc name\n"
	"	.cfi_endproc\n"
	"	.size \\name,.-\\name\n"
	"	.endm\n"
	"	.macro mark name\n"
	"	.globl \\name\n"
	"	.type \\name,@function\n"
	"	\\name:\n"
	"	.endm\n"
	"	.text\n"
	"	func g\n	ret\n	endfunc g\n"
	"	func h\n	ret\n	endfunc h\n"
	/* the local function that glibc's memalign and posix_memalign share */
	"	func middle\n	test %rdi,%rdi\n	je g\n	ret\n	endfunc middle\n"
	"	func tail\n	push %rbx\n	pop %rbx\n	jmp g\n	endfunc tail\n"
	"	func tail_cond\n	test %rdi,%rdi\n	jne g\n	ret\n	endfunc tail_cond\n"
	"	func tail_local\n	jmp middle\n	endfunc tail_local\n"
	"	func call_local\n	push %rbx\n	call middle\n	mark r_call_local\n"
	"	pop %rbx\n	ret\n	endfunc call_local\n"
	"	func calls\n	call g\n	mark r_calls_1\n	test %rax,%rax\n	"
	"jne 1f\n"
	"	ret\n1:	call g\n	mark r_calls_2\n	call h\n	mark r_calls_3\n"
	"	jmp h\n	endfunc calls\n"
	/* a call of a function that calls */
	"	func deep\n	call calls\n	ret\n	endfunc deep\n"
	/* a call of a function that jumps to one that jumps to g */
	"	func far_tail\n	call tail_local\n	mark r_far_tail\n	ret\n"
	"	endfunc far_tail\n"
	"	func nothing\n	call *%rax\n	jmp *%rax\n	endfunc nothing\n"
	/* loops, also across functions */
	"	func loop\n1:	dec %rdi\n	jne 1b\n	jmp loop\n	endfunc loop\n"
	"	func ping\n	call pong\n	call g\n	mark r_ping\n	ret\n	endfunc "
	"ping\n"
	"	func pong\n	call ping\n	jmp ping\n	endfunc pong\n"
	"	func self\n	call self\n	mark r_self\n	ret\n	endfunc self\n"
	/* the call does not return, the next function is not reached */
	"	func ends_in_call\n	call nothing\n	endfunc ends_in_call\n"
	"	func next\n	jmp g\n	endfunc next\n"
	/* five calls down is too deep */
	"	func down5\n	call g\n	ret\n	endfunc down5\n"
	"	func down4\n	call down5\n	ret\n	endfunc down4\n"
	"	func down3\n	call down4\n	ret\n	endfunc down3\n"
	"	func down2\n	call down3\n	ret\n	endfunc down2\n"
	"	func down1\n	call down2\n	ret\n	endfunc down1\n"
	"	func broken\n	.byte 0x06\n	jmp g\n	endfunc broken\n"
	"	func outside\n	jmp . + 0x10000000\n	endfunc outside\n"
	"	func huge\n	.rept 30000\n	jne . + 2\n	.endr\n	jmp g\n	endfunc huge\n";

static struct image *image;
static struct symtab *symtab;

static uint64_t address(const char *name)
{
	const struct symbol *symbol = symtab_find(symtab, name);

	assert_non_null(symbol);
	return symbol->start;
}

static int setup(void **state)
{
	if (fixture_setup(state))
		return -1;
	fixture_compile("flow", ".s", source, "-shared -nostdlib -Wl,--eh-frame-hdr");
	image = fixture_open(fixture_path("flow"));
	return symtab_load(image, &symtab);
}

static int teardown(void **state)
{
	symtab_free(symtab);
	image_free(image);
	return fixture_teardown(state);
}

/* names: the labels expected, in order of address, ended by NULL. */
static void check(const char *from, uint32_t tail_targets, const char *const *names)
{
	const uint64_t targets[] = {address("g"), address("h")};
	struct flow flow = {};
	size_t count = 0;

	assert_int_equal(flow_trace(image, address(from), targets, 2, &flow), 0);
	assert_int_equal(flow.tail_targets, tail_targets);
	for (; names[count]; count++) {
		assert_true(count < flow.return_count);
		assert_int_equal(flow.returns[count], address(names[count]));
	}
	assert_int_equal(flow.return_count, count);
	assert_false(flow.truncated);
	flow_fini(&flow);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__ NULL})

static void test_tail(void **state)
{
	check("tail", 1, NAMES());
	check("tail_cond", 1, NAMES());
	check("tail_local", 1, NAMES());
	check("nothing", 0, NAMES());
}

static void test_calls(void **state)
{
	check("calls", 2, NAMES("r_calls_1", "r_calls_2", "r_calls_3", ));
	check("call_local", 0, NAMES("r_call_local", ));
	check("far_tail", 0, NAMES("r_far_tail", ));
}

static void test_calls_below(void **state)
{
	const uint64_t targets[] = {address("g")};
	struct flow flow = {};

	/* calls' own sites, and its jump to h seen from deep's call (not marked, so counted). */
	assert_int_equal(flow_trace(image, address("deep"), targets, 1, &flow), 0);
	assert_int_equal(flow.tail_targets, 0);
	assert_int_equal(flow.return_count, 2);
	assert_int_equal(flow.returns[0], address("r_calls_1"));
	assert_int_equal(flow.returns[1], address("r_calls_2"));
	flow_fini(&flow);
}

static void test_loops(void **state)
{
	const uint64_t self = address("self");
	struct flow flow = {};

	check("loop", 0, NAMES());
	check("ping", 0, NAMES("r_ping", ));
	check("self", 0, NAMES());
	/* Recursion of a target is nesting like any other. */
	assert_int_equal(flow_trace(image, self, &self, 1, &flow), 0);
	assert_int_equal(flow.tail_targets, 0);
	assert_int_equal(flow.return_count, 1);
	assert_int_equal(flow.returns[0], address("r_self"));
	flow_fini(&flow);
}

static void test_bounds(void **state)
{
	const uint64_t targets[] = {address("g")};
	struct flow flow = {};

	check("ends_in_call", 0, NAMES());
	check("down1", 0, NAMES());
	check("broken", 0, NAMES());
	check("outside", 0, NAMES());
	assert_int_equal(flow_trace(image, address("huge"), targets, 1, &flow), 0);
	assert_true(flow.truncated);
	assert_int_equal(flow.tail_targets, 0);
	flow_fini(&flow);
	assert_int_equal(flow_trace(image, UINT64_MAX, targets, 1, &flow), 0);
	assert_int_equal(flow.return_count, 0);
	flow_fini(&flow);
	/* down2 is within reach: its calls are at depths 1, 2 and 3. */
	assert_int_equal(flow_trace(image, address("down2"), targets, 1, &flow), 0);
	assert_int_equal(flow.return_count, 1);
	flow_fini(&flow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tail),	    cmocka_unit_test(test_calls),
		cmocka_unit_test(test_calls_below), cmocka_unit_test(test_loops),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
