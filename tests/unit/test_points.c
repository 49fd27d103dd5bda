/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * points: small allocators of our own, and those of this machine.
 *
 * Offsets of real allocators belong to one build: they are compared only where the build-id is the
 * one they were taken from, by hand, with objdump.
 */
#include "elf_fixture.h"

#include <errno.h>

#include "probe/points.h"

#define LIBRARIES "/usr/lib/x86_64-linux-gnu/"

struct loaded {
	struct image *image;
	struct symtab *symtab;
	struct probe_points *points;
};

static void load(struct loaded *loaded, const char *path)
{
	*loaded = (struct loaded){.image = fixture_open(path)};
	assert_int_equal(symtab_load(loaded->image, &loaded->symtab), 0);
	assert_int_equal(probe_points_find(loaded->image, loaded->symtab, &loaded->points), 0);
}

static void unload(struct loaded *loaded)
{
	probe_points_free(loaded->points);
	symtab_free(loaded->symtab);
	image_free(loaded->image);
}

static const struct probe_point *point(const struct loaded *loaded, const char *name)
{
	for (size_t i = 0; i < loaded->points->count; i++)
		if (!strcmp(loaded->points->entries[i].name, name))
			return &loaded->points->entries[i];
	return NULL;
}

static uint32_t delta(const struct loaded *loaded, const char *name)
{
	const struct probe_point *p = point(loaded, name);

	assert_non_null(p);
	return (uint32_t)(p->spec.offset - p->entry_offset);
}

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

static uint32_t label_offset(const struct loaded *loaded, const char *name)
{
	const struct symbol *symbol = symtab_find(loaded->symtab, name);
	uint64_t offset;

	assert_non_null(symbol);
	assert_int_equal(image_vaddr_to_offset(loaded->image, symbol->start, &offset), 0);
	return (uint32_t)offset;
}

static void check_allocator(const struct loaded *loaded)
{
	const struct probe_points *points = loaded->points;

	assert_int_equal(points->count, 7);
	assert_null(point(loaded, "cfree"));
	assert_null(point(loaded, "aligned_alloc"));
	assert_null(point(loaded, "reallocarray"));
	for (size_t i = 0; i < points->count; i++) {
		const struct probe_point *p = &points->entries[i];

		assert_int_equal(p->entry_offset, label_offset(loaded, p->name));
		assert_null(p->why_entry);
		assert_int_equal(p->spec.image, 0);
	}
	assert_int_equal(point(loaded, "malloc")->spec.kind, PROBE_ALLOC);
	assert_int_equal(point(loaded, "calloc")->spec.kind, PROBE_CALLOC);
	assert_int_equal(point(loaded, "realloc")->spec.kind, PROBE_REALLOC);
	assert_int_equal(point(loaded, "memalign")->spec.kind, PROBE_MEMALIGN);
	assert_int_equal(point(loaded, "posix_memalign")->spec.kind, PROBE_OUT_ALLOC);
	assert_int_equal(point(loaded, "free")->spec.kind, PROBE_FREE);
	assert_int_equal(point(loaded, "malloc")->spec.flags, 0);
	assert_int_equal(point(loaded, "calloc")->spec.flags, 0);
	assert_int_equal(point(loaded, "realloc")->spec.flags, PROBE_SKIP_NULL_OLD);
	assert_int_equal(point(loaded, "memalign")->spec.flags, PROBE_SKIP_SMALL_ALIGN);
	assert_int_equal(point(loaded, "posix_memalign")->spec.flags, 0);
	assert_int_equal(point(loaded, "valloc")->spec.flags, 0);
	assert_int_equal(delta(loaded, "free"), 5);
	assert_int_equal(delta(loaded, "realloc"), 3);
	assert_int_equal(points->nested.count, 2);
	assert_int_equal(points->nested.return_offsets[0],
			 label_offset(loaded, "after_realloc_call"));
	assert_int_equal(points->nested.return_offsets[1],
			 label_offset(loaded, "after_middle_call"));
}

static void test_allocator(void **state)
{
	struct loaded loaded;

	fixture_compile("allocator", ".s", allocator, "-shared -nostdlib");
	load(&loaded, fixture_path("allocator"));
	check_allocator(&loaded);
	unload(&loaded);
}

/* Offsets are of the file where these differ from addresses. */
static void test_fixed_address(void **state)
{
	struct loaded loaded;

	fixture_compile("fixed", ".s", allocator,
			"-static -nostdlib -no-pie -Wl,-e,base -Wl,-Ttext=0x12345000");
	load(&loaded, fixture_path("fixed"));
	check_allocator(&loaded);
	assert_true(point(&loaded, "malloc")->entry_offset < 0x10000);
	unload(&loaded);
}

static void check_count(const char *name, const char *text, size_t count)
{
	struct loaded loaded;

	fixture_compile(name, ".c", text, "-shared -fPIC -fno-builtin");
	load(&loaded, fixture_path(name));
	assert_int_equal(loaded.points->count, count);
	unload(&loaded);
}

static void test_not_an_allocator(void **state)
{
	check_count("none", "int f(void) { return 1; }", 0);
	check_count("half", "void *malloc(unsigned long n) { return 0; }", 0);
	check_count("other_half", "void free(void *p) { }", 0);
	check_count("both", "void *malloc(unsigned long n) { return 0; } void free(void *p) { }",
		    2);
	check_count("ifunc",
		    "static void *one(unsigned long n) { return 0; }\n"
		    "static void *choose(void) { return one; }\n"
		    "void *malloc(unsigned long) __attribute__((ifunc(\"choose\")));\n"
		    "void free(void *p) { }",
		    0);
}

static void test_too_many_calls(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct probe_points *points = NULL;

	fixture_compile("many", ".s",
			"	.globl malloc,free,calloc\n"
			"	.hidden malloc\n"
			"	.type malloc,@function\n"
			"	.type free,@function\n"
			"	.type calloc,@function\n"
			"malloc: ret\n"
			"free: ret\n"
			"calloc:	.rept 32\n	call malloc\n	.endr\n	ret\n"
			"	.size calloc,.-calloc\n",
			"-shared -nostdlib");
	image = fixture_open(fixture_path("many"));
	assert_int_equal(symtab_load(image, &symtab), 0);
	assert_int_equal(probe_points_find(image, symtab, &points), -E2BIG);
	assert_null(points);
}

struct known_point {
	const char *name;
	uint32_t delta;
};

struct known_library {
	const char *path;
	const char *build_id;
	struct known_point points[9];
};

static const struct known_library known_libraries[] = {
	/* libc6 2.36-9+deb12u14 */
	{LIBRARIES "libc.so.6",
	 "93ac61ec5a8eb1396f9fbd350e3169a558528a40",
	 {{"malloc", 0},
	  {"calloc", 0},
	  {"realloc", 0},
	  {"memalign", 7},
	  {"posix_memalign", 7},
	  {"valloc", 7},
	  {"pvalloc", 7},
	  {"free", 9}}},
	/* libjemalloc2 5.3.0-1 */
	{LIBRARIES "libjemalloc.so.2",
	 "1d5163c246dc9cd2b4d339f2ac42efd95c6e0ae1",
	 {{"malloc", 7},
	  {"calloc", 0},
	  {"realloc", 0},
	  {"memalign", 0},
	  {"aligned_alloc", 0},
	  {"posix_memalign", 0},
	  {"valloc", 0},
	  {"free", 0x30}}},
	/* libgoogle-perftools4 2.10-1 */
	{LIBRARIES "libtcmalloc.so.4",
	 "560cd227169ae8f93cb59e3215f4ea11c299fa69",
	 {{"malloc", 0xd},
	  {"calloc", 0xc},
	  {"realloc", 0},
	  {"memalign", 0xa},
	  {"posix_memalign", 0xb},
	  {"valloc", 0},
	  {"pvalloc", 0},
	  {"free", 0xa}}},
	/* musl 1.2.3-1 */
	{"/lib/ld-musl-x86_64.so.1",
	 "54d00df44fce62f541ca62b56bdef5bf31ff077c",
	 {{"malloc", 0}, {"realloc", 0}, {"aligned_alloc", 0}, {"free", 0}}},
};

static void check_known(const struct known_library *known)
{
	struct loaded loaded;

	if (access(known->path, R_OK)) {
		print_message("# SKIP %s: not installed\n", known->path);
		return;
	}
	load(&loaded, known->path);
	if (strcmp(image_build_id(loaded.image), known->build_id)) {
		print_message("# SKIP %s: another build\n", known->path);
	} else {
		for (size_t i = 0; known->points[i].name; i++)
			assert_int_equal(delta(&loaded, known->points[i].name),
					 known->points[i].delta);
	}
	unload(&loaded);
}

static void test_known_libraries(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(known_libraries); i++)
		check_known(&known_libraries[i]);
}

/* The C library of this process, whichever it is: what every glibc has in common. */
static void check_glibc(const char *path)
{
	struct loaded loaded;

	load(&loaded, path);
	assert_non_null(point(&loaded, "malloc"));
	assert_non_null(point(&loaded, "calloc"));
	assert_non_null(point(&loaded, "posix_memalign"));
	assert_int_equal(point(&loaded, "realloc")->spec.flags, PROBE_SKIP_NULL_OLD);
	assert_int_equal(point(&loaded, "free")->spec.ptr_reg, 7);
	assert_in_range(loaded.points->nested.count, 1, PROBE_MAX_NESTED_CALLS);
	if (!strcmp(image_build_id(loaded.image), known_libraries[0].build_id)) {
		/* 99130 realloc: call malloc at 9945b, 99527; 9a280 posix_memalign at 9a2ba. */
		static const uint32_t returns[] = {0x99460, 0x9952c, 0x9a2bf};

		assert_int_equal(loaded.points->nested.count, ARRAY_SIZE(returns));
		assert_memory_equal(loaded.points->nested.return_offsets, returns, sizeof(returns));
		assert_int_equal(point(&loaded, "memalign")->spec.flags, PROBE_SKIP_SMALL_ALIGN);
		assert_int_equal(point(&loaded, "posix_memalign")->spec.flags, 0);
		assert_int_equal(point(&loaded, "valloc")->spec.flags, 0);
		assert_int_equal(point(&loaded, "pvalloc")->spec.flags, 0);
	}
	unload(&loaded);
}

static void test_glibc(void **state)
{
	if (access(LIBRARIES "libc.so.6", R_OK))
		skip();
	check_glibc(LIBRARIES "libc.so.6");
}

static void test_static_glibc(void **state)
{
	fixture_compile("static", ".c",
			"#include <malloc.h>\n#include <stdlib.h>\n"
			"int main(int c, char **v)\n"
			"{ void *p = realloc(memalign(64, c), 100), *q; posix_memalign(&q, c, c);\n"
			"  free(p); return !calloc(c, c); }\n",
			"-static");
	check_glibc(fixture_path("static"));
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct probe_points *points CLEANUP(probe_points) = NULL;

	if (image_open(fd, "damaged", &image) || symtab_load(image, &symtab))
		return;
	if (!probe_points_find(image, symtab, &points))
		assert_true(points->nested.count <= PROBE_MAX_NESTED_CALLS);
}

static void test_damage(void **state)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	size_t size;

	fixture_compile("good", ".s", allocator, "-shared -nostdlib -s");
	bytes = fixture_read(fixture_path("good"), &size);
	fixture_damage(bytes, size, check_damaged);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allocator),	 cmocka_unit_test(test_fixed_address),
		cmocka_unit_test(test_not_an_allocator), cmocka_unit_test(test_too_many_calls),
		cmocka_unit_test(test_known_libraries),	 cmocka_unit_test(test_glibc),
		cmocka_unit_test(test_static_glibc),	 cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
