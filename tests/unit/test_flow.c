/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* flow: tail jumps, calls, and both through local functions; which functions only delegate. */
#include "linkage_fixture.h"

#include "probe/flow.h"

/* Labels r_* stand behind the calls that are to be found. g and h are targets. */
static const char source[] = ASM_MACROS
	"	.text\n"
	"	func g\n	ret\n	endfunc g\n"
	"	func h\n	ret\n	endfunc h\n"
	"	.hidden g,h\n"
	/* the local function that glibc's memalign and posix_memalign share */
	"	func middle\n	test %rdi,%rdi\n	je g\n	ret\n	endfunc middle\n"
	"	.hidden middle\n"
	"	func tail\n	push %rbx\n	pop %rbx\n	jmp g\n	endfunc tail\n"
	"	func tail_cond\n	test %rdi,%rdi\n	jne g\n	ret\n	endfunc tail_cond\n"
	"	func tail_local\n	jmp middle\n	endfunc tail_local\n"
	"	.hidden tail_local\n"
	"	func call_local\n	push %rbx\n	call middle\n	mark r_call_local\n"
	"	pop %rbx\n	ret\n	endfunc call_local\n"
	"	func calls\n	call g\n	mark r_calls_1\n	test %rax,%rax\n"
	"	jne 1f\n"
	"	ret\n1:	call g\n	mark r_calls_2\n	call h\n	mark r_calls_3\n"
	"	jmp h\n	endfunc calls\n"
	"	.hidden calls\n"
	/* a call of a function that calls */
	"	func deep\n	call calls\n	mark r_deep\n	ret\n	endfunc deep\n"
	/* a call of a function that jumps to one that jumps to g */
	"	func far_tail\n	call tail_local\n	mark r_far_tail\n	ret\n"
	"	endfunc far_tail\n"
	"	func nothing\n	call *%rax\n	mark r_nothing\n	jmp *%rax\n"
	"	endfunc nothing\n"
	"	.hidden nothing\n"
	"	func table\n	lea 1f(%rip),%rdx\n	movslq (%rdx,%rdi,4),%rax\n"
	"	add %rdx,%rax\n	notrack jmp *%rax\n	1: jmp g\n	endfunc table\n"
	/* loops, also across functions */
	"	func loop\n1:	dec %rdi\n	jne 1b\n	jmp loop\n	endfunc loop\n"
	"	.hidden loop,ping,pong,self\n"
	"	func ping\n	call pong\n	mark r_ping_1\n	call g\n	mark r_ping_2\n"
	"	ret\n	endfunc ping\n"
	"	func pong\n	call ping\n	mark r_pong\n	jmp ping\n	endfunc pong\n"
	"	func self\n	call self\n	mark r_self\n	ret\n	endfunc self\n"
	/* the call does not return, the next function is not reached */
	"	func ends_in_call\n	call nothing\n	endfunc ends_in_call\n"
	"	func next\n	jmp g\n	endfunc next\n"
	"	func falls\n	test %rdi,%rdi\n	.balign 16\n	endfunc falls\n"
	"	func next2\n	jmp g\n	endfunc next2\n"
	/* five calls down is too deep */
	"	.hidden down2,down3,down4,down5\n"
	"	func down5\n	call g\n	mark r_down5\n	ret\n	endfunc down5\n"
	"	func down4\n	call down5\n	ret\n	endfunc down4\n"
	"	func down3\n	call down4\n	ret\n	endfunc down3\n"
	"	func down2\n	call down3\n	ret\n	endfunc down2\n"
	"	func down1\n	call down2\n	ret\n	endfunc down1\n"
	"	func broken\n	test %rdi,%rdi\n	jne g\n	.byte 0x06\n	jmp g\n"
	"	endfunc broken\n"
	"	func outside\n	test %rdi,%rdi\n	jne g\n	jmp . + 0x10000000\n"
	"	endfunc outside\n"
	"	func huge\n	.rept 400000\n	jne . + 2\n	.endr\n	jmp g\n	endfunc huge\n";

/* Functions to ask for what only delegates to g. The names say what is expected. */
static const char delegating[] = ASM_MACROS
	"	.text\n"
	"	func g\n	ret\n	endfunc g\n"
	"	.hidden g\n"
	"	func middle\n	push %rbx\n	call g\n	pop %rbx\n	ret\n"
	"	endfunc middle\n"
	"	func half_middle\n	test %rdi,%rdi\n	je 1f\n	call g\n1:	ret\n"
	"	endfunc half_middle\n"
	"	func stats\n	ret\n	endfunc stats\n"
	"	.hidden middle,half_middle,stats\n"
	"	func yes_jump\n	jmp g\n	endfunc yes_jump\n"
	"	func yes_endbr\n	endbr64\n	bnd jmp g\n	endfunc yes_endbr\n"
	"	func yes_call\n	push %rbx\n	call g\n	mov %rax,%rbx\n	call stats\n"
	"	mov %rbx,%rax\n	pop %rbx\n	ret\n	endfunc yes_call\n"
	/* the target's block is for its own needs */
	"	func no_record\n	push %rbx\n	call g\n	mov %rax,%rbx\n	call "
	"stats\n"
	"	mov %rax,(%rbx)\n	pop %rbx\n	ret\n	endfunc no_record\n"
	"	func yes_middle\n	call middle\n	add $16,%rax\n	ret\n"
	"	endfunc yes_middle\n"
	/* calloc: overflow */
	"	func yes_null\n	mov %rdi,%rax\n	mul %rsi\n	jo 1f\n	mov %rax,%rdi\n"
	"	jmp g\n1:	xor %eax,%eax\n	ret\n	endfunc yes_null\n"
	"	func yes_saved\n	push %rbx\n	xor %ebx,%ebx\n	test %rdi,%rdi\n	je "
	"1f\n"
	"	call g\n	mov %rax,%rbx\n1:	mov %rbx,%rax\n	pop %rbx\n	ret\n"
	"	endfunc yes_saved\n"
	"	func yes_minus\n	test %rdi,%rdi\n	jne g\n	or $-1,%rax\n	ret\n"
	"	endfunc yes_minus\n"
	"	func yes_small\n	test %rdi,%rdi\n	jne g\n	mov $16,%eax\n	ret\n"
	"	endfunc yes_small\n"
	"	func yes_retry\n1:	call g\n	test %rax,%rax\n	jne 2f\n	"
	"call stats\n"
	"	jmp 1b\n2:	ret\n	endfunc yes_retry\n"
	"	func yes_trap\n	test %rdi,%rdi\n	jne g\n	ud2\n	endfunc yes_trap\n"
	"	func yes_abort\n	test %rdi,%rdi\n	jne g\n	call stats\n	nop\n"
	"	endfunc yes_abort\n"
	"	func no_path\n	test %rdi,%rdi\n	jne g\n	mov %rsi,%rax\n	ret\n"
	"	endfunc no_path\n"
	"	func no_middle\n	call half_middle\n	ret\n	endfunc no_middle\n"
	"	func no_target\n	call stats\n	ret\n	endfunc no_target\n"
	"	func no_fails\n	xor %eax,%eax\n	ret\n	endfunc no_fails\n"
	"	func no_call_result\n	xor %eax,%eax\n	test %rdi,%rdi\n	jne g\n"
	"	call stats\n	ret\n	endfunc no_call_result\n"
	"	func no_joined\n	xor %eax,%eax\n	test %rdi,%rdi\n	je 1f\n"
	"	mov %rsi,%rax\n	cmp $7,%rdi\n	je g\n1:	ret\n	endfunc no_joined\n"
	/* (p + 255) & -256, as compilers write it */
	"	func no_low_byte\n	test %rdi,%rdi\n	je g\n	lea 255(%rsi),%rax\n"
	"	xor %al,%al\n	ret\n	endfunc no_low_byte\n"
	"	func no_low_word\n	test %rdi,%rdi\n	je g\n	lea 65535(%rsi),%rax\n"
	"	xor %ax,%ax\n	ret\n	endfunc no_low_word\n"
	"	func no_low_mov\n	test %rdi,%rdi\n	je g\n	mov %rsi,%rax\n"
	"	mov $0,%al\n	ret\n	endfunc no_low_mov\n"
	/* a buffer of a program at fixed addresses */
	"	func no_buffer\n	test %rdi,%rdi\n	je g\n	mov $0x404040,%eax\n	"
	"ret\n"
	"	endfunc no_buffer\n"
	"	func no_buffer_pic\n	test %rdi,%rdi\n	je g\n	lea g(%rip),%rax\n	"
	"ret\n"
	"	endfunc no_buffer_pic\n"
	"	func no_choice\n	xor %eax,%eax\n	test %rdi,%rdi\n	cmovne %rsi,%rax\n"
	"	jne g\n	ret\n	endfunc no_choice\n"
	"	func no_jump_out\n	test %rdi,%rdi\n	je g\n	jmp *(%rsi)\n"
	"	endfunc no_jump_out\n"
	"	func no_broken\n	test %rdi,%rdi\n	je g\n	.byte 0x06\n	ret\n"
	"	endfunc no_broken\n"
	/* by hand: one function runs into the next */
	"	func no_falls\n	test %rdi,%rdi\n	je g\n	nop\n	.balign 16,0x90\n"
	"	endfunc no_falls\n"
	"	func after_no_falls\n	mov %rsi,%rax\n	ret\n	endfunc after_no_falls\n"
	"	.hidden after_no_falls\n"
	"	func yes_falls\n	test %rdi,%rdi\n	je g\n	nop\n	.balign 16,0x90\n"
	"	endfunc yes_falls\n"
	"	func after_yes_falls\n	jmp g\n	endfunc after_yes_falls\n"
	"	.hidden after_yes_falls\n"
	/* posix_memalign: an error number is a failure, 0 is not; nothing at all is returned */
	"	func error_yes\n	test %rdi,%rdi\n	jne g\n	mov $22,%eax\n	ret\n"
	"	endfunc error_yes\n"
	"	func error_no\n	test %rdi,%rdi\n	jne g\n	xor %eax,%eax\n	ret\n"
	"	endfunc error_no\n"
	"	func error_no_join\n	test %rdi,%rdi\n	jne g\n	xor %eax,%eax\n"
	"	test %rsi,%rsi\n	jne 1f\n	mov $22,%eax\n1:	ret\n"
	"	endfunc error_no_join\n"
	"	func nothing_no\n	test %rdi,%rdi\n	jne g\n	xor %eax,%eax\n	ret\n"
	"	endfunc nothing_no\n"
	"	func nothing_yes\n	call g\n	ret\n	endfunc nothing_yes\n"
	"	func at_end\n	test %rdi,%rdi\n	jne g\n	nop\n	endfunc at_end\n";

static struct linked linked;

static int setup(void **state)
{
	if (fixture_setup(state))
		return -1;
	linked_init(&linked, -1, NULL);
	fixture_compile("flow", ".s", source, "-shared -nostdlib -Wl,--eh-frame-hdr");
	linked_add(&linked, fixture_path("flow"));
	fixture_compile("delegating", ".s", delegating, "-shared -nostdlib -Wl,--eh-frame-hdr");
	linked_add(&linked, fixture_path("delegating"));
	return 0;
}

static int teardown(void **state)
{
	linked_fini(&linked);
	return fixture_teardown(state);
}

#define G    0
#define H    1
#define SELF 2

struct expected {
	const char *label; /* behind a call */
	uint32_t target;
};

static void trace(uint32_t module, const char *from, enum flow_result result, struct flow *ret)
{
	struct place targets[] = {
		{module, linked_address(&linked, module, "g")},
		{module, module ? 1 : linked_address(&linked, module, "h")},
		{module, linked_address(&linked, module, from)},
	};
	struct flow_graph *graph = NULL;

	assert_int_equal(flow_graph_new(linked.linkage, module, targets, 3, FLOW_MAX_DEPTH, &graph),
			 0);
	assert_int_equal(flow_graph_query(graph, SELF, result, ret), 0);
	flow_graph_free(graph);
}

static bool has_tail(const struct flow *flow, uint32_t target)
{
	for (size_t i = 0; i < flow->tail_count; i++)
		if (flow->tails[i] == target)
			return true;
	return false;
}

static bool has_return(const struct flow *flow, const struct expected *expected)
{
	for (size_t i = 0; i < flow->return_count; i++)
		if (flow->returns[i].place.vaddr == linked_address(&linked, 0, expected->label) &&
		    flow->returns[i].target == expected->target)
			return true;
	return false;
}

/* tails: bit i is target i. expected: ends with an empty label. */
static void check(const char *from, uint32_t tails, const struct expected *expected)
{
	struct flow flow = {};
	size_t count = 0;

	trace(0, from, FLOW_RETURNS_BLOCK, &flow);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(has_tail(&flow, i), tails >> i & 1);
	for (; expected[count].label; count++)
		if (!has_return(&flow, &expected[count]))
			fail_msg("%s: no call before %s", from, expected[count].label);
	assert_int_equal(flow.return_count, count);
	for (size_t i = 0; i < flow.return_count; i++)
		assert_int_equal(flow.returns[i].place.module, 0);
	assert_false(flow.truncated);
	flow_fini(&flow);
}

#define RETURNS(...) ((const struct expected[]){__VA_ARGS__{}})

static void test_tail(void **state)
{
	check("tail", 1u << G, RETURNS());
	check("tail_cond", 1u << G, RETURNS());
	check("tail_local", 1u << G, RETURNS());
	check("nothing", 0, RETURNS({"r_nothing", FLOW_UNKNOWN}, ));
	check("table", 0, RETURNS());
}

static void test_calls(void **state)
{
	check("calls", 1u << H, RETURNS({"r_calls_1", G}, {"r_calls_2", G}, {"r_calls_3", H}, ));
	check("call_local", 0, RETURNS({"r_call_local", G}, ));
	check("far_tail", 0, RETURNS({"r_far_tail", G}, ));
	/* calls' own sites, and its jump to h seen from deep's call */
	check("deep", 0,
	      RETURNS({"r_calls_1", G}, {"r_calls_2", G}, {"r_calls_3", H}, {"r_deep", H}, ));
}

static void test_loops(void **state)
{
	check("loop", 0, RETURNS());
	check("ping", 0, RETURNS({"r_ping_1", SELF}, {"r_ping_2", G}, {"r_pong", SELF}, ));
	check("pong", 0, RETURNS({"r_ping_1", SELF}, {"r_ping_2", G}, ));
	/* Recursion of a target is nesting like any other. */
	check("self", 0, RETURNS({"r_self", SELF}, ));
}

static void test_bounds(void **state)
{
	struct flow flow = {};

	check("ends_in_call", 0, RETURNS());
	check("down1", 0, RETURNS());
	/* down2 is within reach: its calls are at depths 1, 2 and 3. */
	check("down2", 0, RETURNS({"r_down5", G}, ));
	check("broken", 1u << G, RETURNS());
	check("outside", 1u << G, RETURNS());
	check("falls", 1u << G, RETURNS());
	trace(0, "huge", FLOW_RETURNS_BLOCK, &flow);
	assert_true(flow.truncated);
	assert_false(flow.delegates);
	assert_int_equal(flow.tail_count, 0);
	flow_fini(&flow);
}

static void test_no_code(void **state)
{
	struct place targets[] = {{0, UINT64_MAX}, {0, 0}, {1, linked_address(&linked, 1, "g")}};
	struct flow_graph *graph = NULL;
	struct flow flow = {};

	assert_int_equal(flow_graph_new(linked.linkage, 0, targets, 3, FLOW_MAX_DEPTH, &graph), 0);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(flow_graph_query(graph, i, FLOW_RETURNS_BLOCK, &flow), 0);
		assert_false(flow.delegates);
		assert_int_equal(flow.tail_count, 0);
		assert_int_equal(flow.return_count, 0);
		flow_fini(&flow);
	}
	flow_graph_free(graph);
}

static bool delegates(const char *name, enum flow_result result)
{
	struct flow flow = {};
	bool ret;

	trace(1, name, result, &flow);
	assert_false(flow.truncated);
	ret = flow.delegates;
	flow_fini(&flow);
	return ret;
}

static int check_delegates(const struct symbol *symbol, void *context)
{
	enum flow_result result = FLOW_RETURNS_BLOCK;
	const char *answer = symbol->name;

	if (!strncmp(answer, "error_", 6)) {
		result = FLOW_RETURNS_ERROR;
		answer += 6;
	} else if (!strncmp(answer, "nothing_", 8)) {
		result = FLOW_RETURNS_NOTHING;
		answer += 8;
	}
	if (strncmp(answer, "yes", 3) && strncmp(answer, "no_", 3) && strcmp(answer, "no"))
		return 0;
	++*(size_t *)context;
	if (delegates(symbol->name, result) != (answer[0] == 'y'))
		fail_msg("%s is judged wrongly", symbol->name);
	return 0;
}

static void test_delegates(void **state)
{
	size_t count = 0;

	symtab_for_each(linked.symtabs[1], check_delegates, &count);
	assert_in_range(count, 30, 100);
}

/* The last instruction of the segment is followed by nothing that can be known. */
static void test_end_of_segment(void **state)
{
	assert_false(delegates("at_end", FLOW_RETURNS_BLOCK));
}

static void test_too_many_targets(void **state)
{
	static struct place targets[FLOW_MAX_TARGETS + 8];
	struct flow_graph *graph = NULL;
	struct flow flow = {};

	for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
		targets[i] = (struct place){1, linked_address(&linked, 1, "g") + i * 4096};
	targets[FLOW_MAX_TARGETS - 1].vaddr = linked_address(&linked, 1, "yes_jump");
	targets[FLOW_MAX_TARGETS].vaddr = linked_address(&linked, 1, "yes_call");
	assert_int_equal(flow_graph_new(linked.linkage, 1, targets, ARRAY_SIZE(targets),
					FLOW_MAX_DEPTH, &graph),
			 0);
	assert_int_equal(flow_graph_query(graph, FLOW_MAX_TARGETS - 1, FLOW_RETURNS_BLOCK, &flow),
			 0);
	assert_true(flow.delegates);
	flow_fini(&flow);
	assert_int_equal(flow_graph_query(graph, FLOW_MAX_TARGETS, FLOW_RETURNS_BLOCK, &flow), 0);
	assert_false(flow.delegates);
	assert_true(flow.truncated);
	flow_fini(&flow);
	flow_graph_free(graph);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tail),	       cmocka_unit_test(test_calls),
		cmocka_unit_test(test_loops),	       cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_no_code),	       cmocka_unit_test(test_delegates),
		cmocka_unit_test(test_end_of_segment), cmocka_unit_test(test_too_many_targets),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
