/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* synth: rows decoded from code, against what is known of it and against the compiler's own. */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/callsites.h"
#include "elf/code.h"
#include "elf/symtab.h"
#include "unwind/rows.h"
#include "unwind/synth.h"

#define FUNC(name) "	.globl " name "\n	.type " name ",@function\n" name ":\n"
#define END(name)  "	.size " name ",.-" name "\n"
/* A label that rows are asked at. */
#define AT(name) "	.globl " name "\n" name ":\n"

/* No function has unwind information. */
static const char source[] = "	.text\n" FUNC(
	"pushes") "	push %rbx\n	push %r12\n	push "
		  "$1\n" AT(
			  "push"
			  "es_"
			  "3") "	call out\n	add "
			       "$8,%rsp\n	pop %r12\n" AT(
				       "pus"
				       "hes"
				       "_1") "	pop %rbx\n" AT("pushes_0") "	ret\n" END("pushes")
				       FUNC("frame") "	push "
						     "%rbp\n" AT(
							     "frame"
							     "_push"
							     "ed") "	mov %rsp,%rbp\n	push %rbx\n"
								   "	sub $0x12340,%rsp\n" AT(
									   "frame_body") "	cal"
											 "l "
											 "out\n	"
											 "leave"
											 "\n" AT("f"
												 "r"
												 "a"
												 "m"
												 "e"
												 "_"
												 "l"
												 "e"
												 "f"
												 "t") "	ret\n" END("frame")
	/* rsp is lost, rbp is not */
	FUNC("alloca") "	push %rbp\n	mov %rsp,%rbp\n	sub %rdi,%rsp\n	and $-32,%rsp\n" AT(
		"alloca_body") "	call out\n	mov %rbp,%rsp\n	pop %rbp\n" AT("alloca_end") "	ret\n" END("alloca")
		FUNC("lost") "	mov %rsp,%rax\n	and $-16,%rsp\n" AT(
			"lost_body") "	call out\n"
				     "	mov %rax,%rsp\n	ret\n" END("lost")
	/* the epilogue in the middle; what is behind it is branched to */
	FUNC("branches") "	push %rbx\n	sub $16,%rsp\n	test %edi,%edi\n	jne 1f\n"
			 "	add $16,%rsp\n	pop %rbx\n" AT(
				 "branches_ret") "	ret\n"
						 "1:\n" AT("branches_cold") "	call out\n	"
									    "add $16,%rsp\n	"
									    "pop %rbx\n	jmp "
									    "out\n" END("branches")
	/* the block behind the jump is only reached from below */
	FUNC("backward") "	push %rbx\n	jmp 2f\n	ret\n1:\n" AT(
		"backward_body") "	call out\n	pop %rbx\n	ret\n2:	test "
				 "%edi,%edi\n	jne 1b\n	call out\n"
				 "	jmp 1b\n" END("backward")
	/* the call does not return; the branch target behind it has another frame */
	FUNC("noreturn") "	test %edi,%edi\n	je 1f\n	push %rbx\n	push %r12\n	"
			 "call out\n"
			 "1:\n" AT("noreturn_target") "	call out\n	ret\n" END("noreturn")
				 FUNC("switch") "	sub $40,%rsp\n	jmp *%rax\n" AT(
					 "switch_case") "	call out\n"
							"	add $40,%rsp\n	ret\n" AT(
								"switch_case_2") "	call "
										 "out\n	add "
										 "$40,%rsp\n	"
										 "ret\n" END("switc"
											     "h")
	/* rbp is saved without push, restored, and used as a common register */
	FUNC("saved") "	sub $24,%rsp\n	mov %rbp,8(%rsp)\n	mov %rdi,%rbp\n" AT(
		"saved_body") "	call out\n	mov 8(%rsp),%rbp\n" AT("saved_back") "	add $24,%rsp\n	ret\n" END("saved")
		FUNC("spoiled") "	mov %rdi,%rbp\n" AT(
			"spoiled_body") "	call out\n	ret\n" END("spoiled")
			FUNC("leas") "	lea -32(%rsp),%rsp\n" AT(
				"leas_1") "	push %rbp\n	lea 16(%rsp),%rbp\n" AT("leas_2") "	call out\n	lea -16(%rbp),%rsp\n	pop %rbp\n" AT("leas_3") "	lea 32(%rsp),%rsp\n" AT("leas_4") "	ret\n" END("leas")
				FUNC("flags") "	pushf\n	push (%rax)\n" AT(
					"flags_1") "	call out\n	pop (%rax)\n	popf\n" AT("flags_2") "	ret\n" END("flags")
					FUNC("exchange") "	xchg %rax,%rsp\n" AT(
						"exchange_1") "	call out\n	ret\n" END("exchang"
											   "e")
	/* bmi writes its first register without naming it in ModRM */
	FUNC("bmi") "	blsr %rax,%rbp\n" AT("bmi_1") "	call out\n	ret\n" END("bmi")
		FUNC("garbage") "	push %rbx\n	.byte 0x06\n" AT(
			"garbage_1") "	call out\n	ret\n" END("garbage")
	/* musl's clone: the child has no caller */
	FUNC(
		"clone") "	mov $56,%eax\n	syscall\n	test %eax,%eax\n	jnz 1f\n"
			 "	xor %ebp,%ebp\n	pop %rdi\n" AT(
				 "clone_child") "	call *%r9\n	hlt\n1:\n" AT("clone_"
										      "parent") "	ret\n" END("clone") "	nop\n" FUNC("restorer") "	mov $15,%rax\n	syscall\n" END("restorer")
				 FUNC("entry") "	mov %rsp,%rdi\n	and $-16,%rsp\n" AT(
					 "entry_body") "	call pushes\n	call clone\n"
						       "	hlt\n" END("entry")
							       FUNC("out") "	ret\n" END("out");

static struct image *image;
static struct symtab *symtab;
static struct unwind_rows *rows;

static void unload(void)
{
	unwind_rows_free(take_ptr(rows));
	symtab_free(take_ptr(symtab));
	image_free(take_ptr(image));
}

static void load(const char *name, bool all)
{
	unload();
	image = fixture_open(fixture_path(name));
	symtab_load(image, &symtab);
	assert_int_equal(unwind_rows_build(image, symtab, all, &rows), 0);
}

/* Labels are no functions: nm finds them. */
static uint64_t address(const char *file, const char *name)
{
	char command[300];
	unsigned long value = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "nm %s | sed -n 's/ . %s$//p'", fixture_path(file),
		 name);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%lx", &value), 1);
	pclose(pipe);
	return value;
}

static struct unwind_rule rule_at(uint64_t vaddr)
{
	uint64_t offset;

	assert_int_equal(image_vaddr_to_offset(image, vaddr, &offset), 0);
	return unwind_rows_lookup(rows, offset);
}

struct expected {
	const char *label;
	enum unwind_cfa kind;
	int offset;
	enum unwind_bp bp_kind;
	int bp_offset;
};

static const struct expected expected[] = {
	{"pushes", CFA_SP, 8, 0, 0},
	{"pushes_3", CFA_SP, 32, 0, 0},
	{"pushes_1", CFA_SP, 16, 0, 0},
	{"pushes_0", CFA_SP, 8, 0, 0},
	{"frame_pushed", CFA_SP, 16, BP_CFA, -16},
	{"frame_body", CFA_BP, 16, BP_CFA, -16},
	{"frame_left", CFA_SP, 8, 0, 0},
	{"alloca_body", CFA_BP, 16, BP_CFA, -16},
	{"alloca_end", CFA_SP, 8, 0, 0},
	{"lost_body", CFA_GAP, 0, 0, 0},
	{"branches_ret", CFA_SP, 8, 0, 0},
	{"branches_cold", CFA_SP, 32, 0, 0},
	{"backward_body", CFA_SP, 16, 0, 0},
	{"noreturn_target", CFA_SP, 8, 0, 0},
	{"switch_case", CFA_SP, 48, 0, 0},
	{"switch_case_2", CFA_SP, 48, 0, 0},
	{"saved_body", CFA_SP, 32, BP_CFA, -24},
	{"saved_back", CFA_SP, 32, 0, 0},
	{"spoiled_body", CFA_GAP, 0, 0, 0},
	{"leas_1", CFA_SP, 40, 0, 0},
	{"leas_2", CFA_BP, 32, BP_CFA, -48},
	{"leas_3", CFA_SP, 40, 0, 0},
	{"leas_4", CFA_SP, 8, 0, 0},
	{"flags_1", CFA_SP, 24, 0, 0},
	{"flags_2", CFA_SP, 8, 0, 0},
	{"exchange_1", CFA_GAP, 0, 0, 0},
	{"bmi_1", CFA_GAP, 0, 0, 0},
	{"garbage_1", CFA_GAP, 0, 0, 0},
	{"clone", CFA_SP, 8, 0, 0},
	{"clone_child", CFA_END, 0, 0, 0},
	{"clone_parent", CFA_SP, 8, 0, 0},
	{"restorer", CFA_SIGNAL, 0, 0, 0},
	{"entry_body", CFA_END, 0, 0, 0},
};

static void test_patterns(void **state)
{
	fixture_compile("patterns", ".s", source, "-nostdlib -static -Wl,-e,entry");
	load("patterns", true);
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct expected *e = &expected[i];
		struct unwind_rule rule = rule_at(address("patterns", e->label));

		if (rule.cfa_kind != e->kind || rule.cfa_offset != e->offset ||
		    rule.bp_kind != e->bp_kind || rule.bp_offset != e->bp_offset)
			fail_msg("%s: cfa %d%+d, bp %d%+d", e->label, rule.cfa_kind,
				 rule.cfa_offset, rule.bp_kind, rule.bp_offset);
	}
	/* A signal handler returns to the restorer: looked up at its address minus one. */
	assert_int_equal(rule_at(address("patterns", "restorer") - 1).cfa_kind, CFA_SIGNAL);
	assert_true(rows->synthesized >= 20);
}

/* Without symbols all of this is found from calls, and from where functions end. */
static void test_stripped(void **state)
{
	static const char *const functions[] = {"pushes_3",    "frame_body",	"branches_cold",
						"alloca_body", "backward_body", "clone_child"};
	uint64_t addresses[ARRAY_SIZE(functions)];
	struct unwind_rule rules[ARRAY_SIZE(functions)];

	load("patterns", true);
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		addresses[i] = address("patterns", functions[i]);
		rules[i] = rule_at(addresses[i]);
	}
	fixture_compile("stripped", ".s", source, "-nostdlib -static -s -Wl,-e,entry");
	load("stripped", true);
	assert_null(symtab);
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		struct unwind_rule rule = rule_at(addresses[i]);

		/* The same, but known to rest on a guess. */
		assert_int_equal(rule.guessed, rules[i].cfa_kind > CFA_END);
		rule.guessed = 0;
		assert_memory_equal(&rule, &rules[i], sizeof(rule));
	}
}

static const char program[] =
	"#include <stdlib.h>\n#include <string.h>\n#include <alloca.h>\n"
	"struct node { struct node *next; int key; char text[40]; };\n"
	"void use(void *, ...);\nextern int volatile knob;\n"
	"int walk(struct node *n, int depth) {\n"
	"	int sum = 0; char buffer[200];\n"
	"	for (; n; n = n->next) {\n"
	"		switch (n->key) {\n"
	"		case 0: use(buffer, n, depth); break;\n"
	"		case 1: sum += walk(n->next, depth + 1); break;\n"
	"		case 2: memset(buffer, depth, sizeof(buffer)); use(buffer); break;\n"
	"		case 3: use(alloca(depth * 16)); break;\n"
	"		case 4: if (depth > 100) abort(); sum += depth; break;\n"
	"		case 5: use(n, buffer, sum, depth, 1, 2, 3, 4, 5); break;\n"
	"		default: return sum + knob;\n"
	"		}\n"
	"	}\n	return sum;\n}\n"
	"int compare(const void *a, const void *b) { return *(int *)a - *(int *)b; }\n"
	"void sort(int *v, size_t n, size_t m) {\n"
	"	for (size_t i = 0; i < m; i++) { qsort(v + i * n, n, sizeof(*v), compare); use(v); "
	"}\n"
	"	if (m > n) exit(1);\n	for (size_t i = 0; i < n; i++) if (v[i]) use(v, i, m);\n}\n"
	"double mix(double *x, int n) { double s = 0; for (int i = 0; i < n; i++) { s += x[i]; "
	"use(&s); } return s; }\n"
	"int tail(int n) { if (n > 5) use(0, n); return walk(0, n); }\n";

/* Of gcc's cold parts it is not known from where they are reached. */
static bool is_fragment(uint64_t offset)
{
	const struct symbol *symbol;
	uint64_t vaddr;

	assert_int_equal(image_offset_to_vaddr(image, offset, &vaddr), 0);
	symbol = symtab_lookup(symtab, vaddr);
	return symbol && strstr(symbol->name, ".cold");
}

/* One compilation with and one without tables: same code, so the decoder must say the same. */
static void check_against_compiler(const char *flags)
{
	struct unwind_rows *truth CLEANUP(unwind_rows) = NULL;
	struct callsites callsites;
	size_t compared = 0;
	char options[300];
	struct code code;

	snprintf(options, sizeof(options), "-shared -fPIC %s -fno-exceptions", flags);
	fixture_compile("with", ".c", program, options);
	load("with", false);
	truth = take_ptr(rows);
	snprintf(options, sizeof(options),
		 "-shared -fPIC %s -fno-exceptions && objcopy -R .eh_frame -R .eh_frame_hdr "
		 "without 2>/dev/null",
		 flags);
	fixture_compile("without", ".c", program, options);
	load("without", false);
	assert_int_equal(code_load(image, &code), 0);
	assert_int_equal(callsites_scan(&code, &callsites), 0);
	for (size_t i = 0; i < callsites.count; i++) {
		uint64_t offset = callsites.lookups[i];
		struct unwind_rule a = unwind_rows_lookup(truth, offset);
		struct unwind_rule b = unwind_rows_lookup(rows, offset);

		if (a.cfa_kind == CFA_GAP || is_fragment(offset))
			continue;
		/* Where both hold, sp and bp are two names of one CFA. */
		if (a.cfa_kind != b.cfa_kind && b.cfa_kind == CFA_GAP)
			fail_msg("%s: lost at %#zx", flags, (size_t)offset);
		/* Behind the last pop rbp is back, and still where it was saved. */
		if (b.cfa_kind == CFA_SP && b.cfa_offset == 8)
			b.bp_kind = a.bp_kind, b.bp_offset = a.bp_offset;
		if (a.bp_kind != b.bp_kind || a.bp_offset != b.bp_offset ||
		    (a.cfa_kind == b.cfa_kind && a.cfa_offset != b.cfa_offset))
			fail_msg("%s: %#zx: cfa %d%+d bp %d%+d, compiler: cfa %d%+d bp %d%+d",
				 flags, (size_t)offset, b.cfa_kind, b.cfa_offset, b.bp_kind,
				 b.bp_offset, a.cfa_kind, a.cfa_offset, a.bp_kind, a.bp_offset);
		compared++;
	}
	callsites_fini(&callsites);
	assert_true(compared > 10);
}

static void test_compiler(void **state)
{
	static const char *const flags[] = {
		"-O0",
		"-O1",
		"-O2",
		"-O3",
		"-Os",
		"-O2 -fno-omit-frame-pointer",
		"-O2 -fcf-protection",
		"-O2 -fstack-protector-all",
		"-O3 -fno-jump-tables",
		"-Os -fno-plt",
	};

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		check_against_compiler(flags[i]);
}

static void check_damaged(int fd)
{
	struct image *damaged CLEANUP(image) = NULL;
	struct symtab *symbols CLEANUP(symtab) = NULL;
	struct unwind_rows *found CLEANUP(unwind_rows) = NULL;

	if (image_open(fd, "damaged", &damaged))
		return;
	symtab_load(damaged, &symbols);
	unwind_rows_build(damaged, symbols, true, &found);
}

static void test_damage(void **state)
{
	size_t size;
	uint8_t *bytes = fixture_read(fixture_path("patterns"), &size);

	fixture_damage(bytes, size, check_damaged);
	free(bytes);
}

static void test_bounds(void **state)
{
	static const uint8_t ret = 0xc3;
	struct synth_code code = {.bytes = &ret, .size = SYNTH_MAX_SIZE + 1ul};
	struct cfi_rows found = {};

	assert_int_equal(synth_rows(&code, &found), -E2BIG);
	code.size = 0;
	assert_int_equal(synth_rows(&code, &found), 0);
	assert_int_equal(found.count, 0);
	code.size = 1;
	assert_int_equal(synth_rows(&code, &found), 0);
	assert_int_equal(found.count, 1);
	cfi_rows_fini(&found);
}

static int teardown(void **state)
{
	unload();
	return fixture_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patterns), cmocka_unit_test(test_stripped),
		cmocka_unit_test(test_compiler), cmocka_unit_test(test_damage),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests_name("synth", tests, fixture_setup, teardown);
}
