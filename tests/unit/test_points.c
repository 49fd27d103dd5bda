/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* points: which functions of one file count, where they are probed, and their nested calls. */
#include "linkage_fixture.h"

#include <errno.h>

#include "failing_malloc.h"

/* As in glibc: realloc jumps to malloc and calls it; the others reach it through middle. */
static const char allocator[] =
	"	.macro func name\n"
	"	.globl \\name\n"
	"	.type \\name,@function\n"
	"	\\name:\n"
	"	.endm\n"
	"	.text\n"
	"	.globl base\n"
	"	.type base,@function\n"
	"base:	.size base,1\n"
	"	func malloc\n	push %rbp\n	pop %rbp\n	ret\n	.size malloc,.-malloc\n"
	"	func free\n	func cfree\n	test %rdi,%rdi\n	je 1f\n	push %rbp\n"
	"	pop %rbp\n1:	ret\n	.size free,.-free\n	.size cfree,.-cfree\n"
	"	func realloc\n	test %rdi,%rdi\n	je m\n	push %rbp\n	call m\n"
	"	func after_realloc_call\n"
	"	pop %rbp\n	ret\n	.size realloc,.-realloc\n"
	"	func memalign\n	func aligned_alloc\n	jmp middle\n"
	"	.size memalign,.-memalign\n	.size aligned_alloc,.-aligned_alloc\n"
	"	func posix_memalign\n	push %rbx\n	call middle\n"
	"	func after_middle_call\n	pop %rbx\n	ret\n"
	"	.size posix_memalign,.-posix_memalign\n"
	"	func valloc\n	jmp middle\n	.size valloc,.-valloc\n"
	"	func calloc\n	push %rbx\n	pop %rbx\n	ret\n	.size calloc,.-calloc\n"
	"	func reallocarray\n	jmp realloc@plt\n	.size reallocarray,.-reallocarray\n"
	"middle:	cmp $16,%rdi\n	jbe m\n	ret\n"
	"	.set m,malloc\n	.hidden m\n";

static uint32_t delta(const struct linked *linked, const char *name)
{
	const struct probe_point *point = linked_point(linked, 0, name);

	assert_non_null(point);
	return (uint32_t)(point->spec.offset - point->entry_offset);
}

static void check_point(const struct linked *linked, const char *name, enum probe_kind kind,
			unsigned int flags)
{
	const struct probe_point *point = linked_point(linked, 0, name);

	if (!point)
		fail_msg("'%s' is not probed", name);
	assert_int_equal(point->spec.kind, kind);
	assert_int_equal(point->spec.flags, flags);
	assert_int_equal(point->spec.image, 0);
	assert_int_equal(point->entry_offset, linked_offset(linked, 0, name));
}

static void check_left_out(const struct linked *linked, uint32_t module, const char *name,
			   const char *other)
{
	const struct left_out *left_out = linked_left_out(linked, module, name);

	if (!left_out)
		fail_msg("'%s' is not left out", name);
	assert_non_null(left_out->reason);
	assert_string_equal(left_out->other, other);
}

static void check_allocator(const struct linked *linked)
{
	const struct module_points *points = &linked->points->modules[0];

	linked_check_points(linked, 0, "malloc free calloc realloc memalign posix_memalign valloc");
	for (size_t i = 0; i < points->count; i++)
		assert_null(points->entries[i].why_entry);
	check_point(linked, "malloc", PROBE_ALLOC, 0);
	check_point(linked, "calloc", PROBE_CALLOC, 0);
	check_point(linked, "realloc", PROBE_REALLOC, PROBE_SKIP_NULL_OLD);
	check_point(linked, "memalign", PROBE_MEMALIGN, PROBE_SKIP_SMALL_ALIGN);
	check_point(linked, "posix_memalign", PROBE_OUT_ALLOC, 0);
	check_point(linked, "valloc", PROBE_ALLOC, 0);
	check_point(linked, "free", PROBE_FREE, 0);
	check_left_out(linked, 0, "reallocarray", "realloc");
	assert_int_equal(points->left_out_count, 1);
	assert_int_equal(delta(linked, "free"), 5);
	assert_int_equal(delta(linked, "realloc"), 3);
	assert_int_equal(points->nested_count, 2);
	assert_true(linked_has_nested(linked, 0, "after_realloc_call"));
	assert_true(linked_has_nested(linked, 0, "after_middle_call"));
	assert_int_equal(points->foreign_count, 0);
	assert_false(linked->points->truncated);
}

static void load(struct linked *linked, const char *name, const char *suffix, const char *source,
		 const char *options)
{
	fixture_compile(name, suffix, source, options);
	linked_init(linked, -1, NULL);
	linked_add(linked, fixture_path(name));
	linked_find(linked);
}

static void test_allocator(void **state)
{
	struct linked linked;

	load(&linked, "allocator", ".s", allocator, "-shared -nostdlib");
	check_allocator(&linked);
	linked_fini(&linked);
}

/* Offsets are of the file where these differ from addresses. */
static void test_fixed_address(void **state)
{
	struct linked linked;

	load(&linked, "fixed", ".s", allocator,
	     "-static -nostdlib -no-pie -Wl,-e,base -Wl,-Ttext=0x12345000");
	check_allocator(&linked);
	assert_true(linked_point(&linked, 0, "malloc")->entry_offset < 0x10000);
	linked_fini(&linked);
}

static void test_plain_entries(void **state)
{
	struct linked linked;

	fixture_compile("plain", ".s", allocator, "-shared -nostdlib");
	linked_init(&linked, -1, NULL);
	linked_add(&linked, fixture_path("plain"));
	assert_int_equal(probe_points_find(linked.linkage,
					   &(struct points_options){.plain_entries = true},
					   &linked.points),
			 0);
	assert_int_equal(delta(&linked, "free"), 0);
	assert_int_equal(delta(&linked, "realloc"), 0);
	assert_non_null(linked_point(&linked, 0, "free")->why_entry);
	linked_fini(&linked);
}

static void check_c(const char *name, const char *text, const char *points)
{
	struct linked linked;

	load(&linked, name, ".c", text, "-shared -fPIC -fno-builtin");
	linked_check_points(&linked, 0, points);
	linked_fini(&linked);
}

static void test_not_an_allocator(void **state)
{
	check_c("none", "int f(void) { return 1; }", "");
	check_c("half", "void *malloc(unsigned long n) { return 0; }", "");
	check_c("other_half", "void free(void *p) { }", "");
	check_c("both", "void *malloc(unsigned long n) { return 0; } void free(void *p) { }",
		"malloc free");
	check_c("ifunc",
		"static void *one(unsigned long n) { return 0; }\n"
		"static void *choose(void) { return one; }\n"
		"void *malloc(unsigned long) __attribute__((ifunc(\"choose\")));\n"
		"void free(void *p) { }",
		"");
}

static void test_families(void **state)
{
	struct linked linked;

	check_c("families",
		"void *je_malloc(long n) { return 0; } void je_free(void *p) { }\n"
		"void *_rjem_malloc(long n) { return 0; }\n"
		"void *mi_new(long n) { return 0; } void mi_free(void *p) { }\n"
		"void *my_malloc(long n) { return 0; } void my_free(void *p) { }\n"
		"void _ZdlPv(void *p) { }\n",
		"je_malloc je_free mi_new mi_free");
	fixture_compile("prefix", ".c",
			"void *my_malloc(long n) { return 0; } void my_free(void *p) { }\n"
			"void *my_strange(long n) { return 0; }\n",
			"-shared -fPIC -fno-builtin");
	linked_init(&linked, -1, "my_");
	linked_add(&linked, fixture_path("prefix"));
	linked_find(&linked);
	linked_check_points(&linked, 0, "my_malloc my_free");
	linked_fini(&linked);
}

/* Of names for one address the highest in the catalog is taken. */
static void test_aliases(void **state)
{
	check_c("aliases",
		"void *tc_new(long n) { return (void *)n; }\n"
		"void *_Znam(long) __attribute__((alias(\"tc_new\")));\n"
		"void *malloc(long) __attribute__((alias(\"tc_new\")));\n"
		"void tc_delete(void *p) { }\n"
		"void _ZdlPv(void *) __attribute__((alias(\"tc_delete\")));\n",
		"malloc _ZdlPv");
}

/* Functions of one file; what is expected is in their comments. */
static const char decisions[] = ASM_MACROS
	"	.text\n"
	"	func malloc\n	push %rbx\n	pop %rbx\n	mov %rdi,%rax\n	ret\n"
	"	endfunc malloc\n"
	"	func free\n	push %rbx\n	pop %rbx\n	ret\n	endfunc free\n"
	"	.hidden m,f\n	.set m,malloc\n	.set f,free\n"
	/* only calls malloc, and free: but free may be a copy inside it */
	"	func realloc\n	push %rdi\n	call m\n	mark r_realloc\n	pop %rdi\n"
	"	ret\n	endfunc realloc\n"
	/* only calls realloc */
	"	func reallocarray\n	push %rdi\n	call realloc\n	pop %rdi\n	ret\n"
	"	.hidden realloc\n	endfunc reallocarray\n"
	/* delegates by a call, but one that counts calls it: is to count too */
	"	func calloc\n	push %rdi\n	call m\n	mark r_calloc\n	pop %rdi\n"
	"	ret\n	.hidden calloc\n	endfunc calloc\n"
	"	func _Znwm\n	test %rsi,%rsi\n	je 1f\n	push %rdi\n	call calloc\n"
	"	mark r_new\n	pop %rdi\n	ret\n1:	mov %rdi,%rax\n	ret\n"
	"	endfunc _Znwm\n"
	/* it and one that is left out would share the call in a middle */
	"	func middle\n	push %rdi\n	call m\n	mark r_middle\n	pop %rdi\n"
	"	ret\n	.hidden middle\n	endfunc middle\n"
	"	func _Znam\n	test %rsi,%rsi\n	je 1f\n	call middle\n	ret\n"
	"1:	mov %rdi,%rax\n	ret\n	endfunc _Znam\n"
	"	func aligned_alloc\n	push %rdi\n	call middle\n	pop %rdi\n	ret\n"
	"	endfunc aligned_alloc\n"
	/* left out, and called by one that counts: behind that call malloc returns */
	"	func tc_new\n	jmp m\n	.hidden tc_new\n	endfunc tc_new\n"
	"	func tc_newarray\n	test %rsi,%rsi\n	je 1f\n	call tc_new\n"
	"	mark r_newarray\n	ret\n1:	mov %rdi,%rax\n	ret\n	endfunc tc_newarray\n"
	"	func tc_free\n	jmp f\n	endfunc tc_free\n"
	/* on some ways it jumps to malloc, through one that is left out: cannot be told apart */
	"	func tc_valloc\n	jmp m\n	.hidden tc_valloc\n	endfunc tc_valloc\n"
	"	func mallocx\n	test %rsi,%rsi\n	je tc_valloc\n	mov %rdi,%rax\n	ret\n"
	"	endfunc mallocx\n"
	/* jumps on to a lower one */
	"	func memalign\n	cmp $16,%rdi\n	jbe m\n	test %rdx,%rdx\n	jne lower\n"
	"	mov %rdi,%rax\n	ret\n	endfunc memalign\n"
	"	func _ZnwmSt11align_val_t\n	lower: mov %rdi,%rax\n	ret\n"
	"	endfunc _ZnwmSt11align_val_t\n"
	/* 0 is a success that malloc has no part in */
	"	func posix_memalign\n	test %rsi,%rsi\n	je 1f\n	push %rdi\n	call m\n"
	"	mark r_posix\n	pop %rdi\n	xor %eax,%eax\n	ret\n"
	"1:	xor %eax,%eax\n	ret\n	endfunc posix_memalign\n"
	"	func tc_posix_memalign\n	test %rsi,%rsi\n	je 1f\n	push %rdi\n"
	"	call memalign\n	pop %rdi\n	xor %eax,%eax\n	ret\n"
	"	.hidden memalign\n"
	"1:	mov $22,%eax\n	ret\n	endfunc tc_posix_memalign\n"
	/* cuts its block out of malloc's, which begins before it */
	"	func tc_memalign\n	push %rdi\n	call m\n	mark r_cut\n	pop %rdi\n"
	"	add $63,%rax\n	and $-64,%rax\n	ret\n	endfunc tc_memalign\n"
	/* a free that does nothing by itself on some ways is not known from one that frees */
	"	func cfree\n	test %rdi,%rdi\n	jne f\n	xor %eax,%eax\n	ret\n"
	"	endfunc cfree\n"
	/* both only call the other: something must count */
	"	func mi_malloc\n	test %rdi,%rdi\n	je mi_new\n	xor %eax,%eax\n	"
	"ret\n"
	"	.hidden mi_malloc,mi_new\n	endfunc mi_malloc\n"
	"	func mi_new\n	test %rdi,%rdi\n	jne mi_malloc\n	xor %eax,%eax\n	ret\n"
	"	endfunc mi_new\n"
	"	func mi_free\n	push %rbx\n	pop %rbx\n	ret\n	endfunc mi_free\n";

static void test_decisions(void **state)
{
	struct linked linked;

	load(&linked, "decisions", ".s", decisions, "-shared -nostdlib -Wl,--eh-frame-hdr");
	linked_check_points(&linked, 0,
			    "malloc free realloc calloc _Znwm _Znam aligned_alloc tc_newarray "
			    "memalign posix_memalign tc_memalign cfree mi_malloc mi_free");
	check_point(&linked, "realloc", PROBE_REALLOC, 0);
	check_point(&linked, "memalign", PROBE_MEMALIGN, PROBE_SKIP_SMALL_ALIGN);
	check_left_out(&linked, 0, "reallocarray", "realloc");
	check_left_out(&linked, 0, "tc_new", "malloc");
	check_left_out(&linked, 0, "tc_valloc", "malloc");
	check_left_out(&linked, 0, "mallocx", "malloc");
	check_left_out(&linked, 0, "_ZnwmSt11align_val_t", "memalign");
	check_left_out(&linked, 0, "tc_posix_memalign", "memalign");
	check_left_out(&linked, 0, "tc_free", "free");
	check_left_out(&linked, 0, "mi_new", "mi_malloc");
	assert_true(linked_has_nested(&linked, 0, "r_realloc"));
	assert_true(linked_has_nested(&linked, 0, "r_calloc"));
	assert_true(linked_has_nested(&linked, 0, "r_new"));
	assert_true(linked_has_nested(&linked, 0, "r_middle"));
	assert_true(linked_has_nested(&linked, 0, "r_newarray"));
	assert_true(linked_has_nested(&linked, 0, "r_posix"));
	assert_true(linked_has_nested(&linked, 0, "r_cut"));
	assert_int_equal(linked.points->modules[0].nested_count, 7);
	assert_int_equal(linked.points->modules[0].foreign_count, 0);
	linked_fini(&linked);
}

/* Calls are only bounded by the code that is looked at. */
static void test_many_calls(void **state)
{
	struct linked linked;

	load(&linked, "many", ".s",
	     "	.globl malloc,free,calloc\n"
	     "	.hidden malloc\n"
	     "	.type malloc,@function\n"
	     "	.type free,@function\n"
	     "	.type calloc,@function\n"
	     "malloc: ret\n"
	     "free: ret\n"
	     "calloc:	.rept 100\n	call malloc\n	.endr\n	test %rdi,%rdi\n"
	     "	jne 1f\n	ret\n1: jmp malloc\n"
	     "	.size calloc,.-calloc\n",
	     "-shared -nostdlib");
	/* All of its ways lead through malloc. */
	check_left_out(&linked, 0, "calloc", "malloc");
	assert_int_equal(linked.points->modules[0].nested_count, 0);
	linked_fini(&linked);
}

static void test_huge(void **state)
{
	struct linked linked;

	load(&linked, "huge", ".s",
	     "	.globl malloc,free,calloc\n"
	     "	.type malloc,@function\n"
	     "	.type free,@function\n"
	     "	.type calloc,@function\n"
	     "malloc: ret\n"
	     "free: ret\n"
	     "calloc:	.rept 400000\n	jne . + 2\n	.endr\n	ret\n"
	     "	.size calloc,.-calloc\n",
	     "-shared -nostdlib");
	assert_true(linked.points->truncated);
	linked_check_points(&linked, 0, "malloc free calloc");
	linked_fini(&linked);
}

/* What a pointer is initialized with is looked into, as long as it is within the bound. */
static void test_many_initializers(void **state)
{
	struct linked linked;

	load(&linked, "initializers", ".s",
	     "	.globl malloc,free\n"
	     "	.type malloc,@function\n"
	     "	.type free,@function\n"
	     "	.text\n"
	     "malloc:	.rept 3000\n	call *pointer(%rip)\n	.endr\n	ret\n"
	     "	.size malloc,.-malloc\n"
	     "free: ret\n"
	     "first:	.rept 300\n	nop\n	.endr\n	call dlsym@plt\n	ret\n"
	     "	.data\n"
	     "pointer: .quad first\n",
	     "-shared -nostdlib");
	assert_true(linked.points->truncated);
	linked_fini(&linked);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct linkage *linkage CLEANUP(linkage) = NULL;
	struct probe_points *points CLEANUP(probe_points) = NULL;

	if (image_open(fd, "damaged", &image))
		return;
	assert_int_equal(linkage_new(-1, NULL, &linkage), 0);
	if (!linkage_add(linkage, image, LINKAGE_NOT_LOADED) &&
	    !probe_points_find(linkage, &(struct points_options){}, &points))
		assert_int_equal(points->module_count, 1);
}

static void test_damage(void **state)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	size_t size;

	fixture_compile("good", ".s", decisions, "-shared -nostdlib -s -Wl,--eh-frame-hdr");
	bytes = fixture_read(fixture_path("good"), &size);
	fixture_damage(bytes, size, check_damaged);
}

/* Each allocation fails once, until all succeed. */
static void test_no_memory(void **state)
{
#if FAILING_MALLOC_WORKS
	struct image *image;
	int err = -ENOMEM;

	fixture_compile("memory", ".s", decisions, "-shared -nostdlib -Wl,--eh-frame-hdr");
	for (long n = 1; err; n++) {
		struct probe_points *points = NULL;
		struct linkage *linkage = NULL;

		assert_in_range(n, 1, 100000);
		image = fixture_open(fixture_path("memory"));
		failing_malloc_countdown = n;
		err = linkage_new(-1, "my_", &linkage);
		if (!err)
			err = linkage_add(linkage, image, LINKAGE_NOT_LOADED);
		if (!err)
			err = probe_points_find(linkage, &(struct points_options){}, &points);
		/* Without memory for slots, or inside libelf, something is left unseen. */
		if (!err && !failing_malloc_countdown)
			err = -ENOMEM;
		failing_malloc_countdown = 0;
		assert_true(!err || err == -ENOMEM);
		probe_points_free(points);
		linkage_free(linkage);
		image_free(image);
	}
#else
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allocator),     cmocka_unit_test(test_fixed_address),
		cmocka_unit_test(test_plain_entries), cmocka_unit_test(test_not_an_allocator),
		cmocka_unit_test(test_families),      cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_decisions),     cmocka_unit_test(test_many_calls),
		cmocka_unit_test(test_huge),	      cmocka_unit_test(test_many_initializers),
		cmocka_unit_test(test_damage),	      cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
