/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * points: the allocators of this machine.
 *
 * Offsets of real allocators belong to one build: they are compared only where the build-id is the
 * one they were taken from, by hand, with objdump.
 */
#include "linkage_fixture.h"

#define LIBRARIES "/usr/lib/x86_64-linux-gnu/"
#define LIBC	  LIBRARIES "libc.so.6"
#define LIBSTDCXX LIBRARIES "libstdc++.so.6"

struct known_point {
	const char *name;
	uint32_t delta; /* of the probe from the entry */
};

struct known_library {
	const char *path;
	const char *build_id;
	struct known_point points[12];
	const char *left_out; /* the catalog's names for aliases differ: some of them */
};

static const struct known_library libc = {
	/* libc6 2.36-9+deb12u14 */
	LIBC,
	"93ac61ec5a8eb1396f9fbd350e3169a558528a40",
	{{"malloc", 0},
	 {"calloc", 0},
	 {"realloc", 0},
	 {"memalign", 7},
	 {"posix_memalign", 7},
	 {"valloc", 7},
	 {"pvalloc", 7},
	 {"free", 9}},
	"reallocarray",
};

static const struct known_library known_libraries[] = {
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
	  {"free", 0x30},
	  {"_Znwm", 7},
	  {"_ZnwmRKSt9nothrow_t", 7},
	  {"_ZdlPvm", 3},
	  {"_ZdaPvm", 3}},
	 "_Znam _ZnamRKSt9nothrow_t _ZdlPv _ZdaPv"},
	/* libgoogle-perftools4 2.10-1 */
	{LIBRARIES "libtcmalloc.so.4",
	 "560cd227169ae8f93cb59e3215f4ea11c299fa69",
	 {{"malloc", 0xd},
	  {"calloc", 0xc},
	  {"realloc", 0},
	  {"memalign", 0xa},
	  {"free", 0xa},
	  {"_Znwm", 0xd},
	  {"_ZnwmRKSt9nothrow_t", 0xd},
	  {"_ZnwmSt11align_val_t", 0xd},
	  {"tc_free_sized", 0xa}},
	 "posix_memalign tc_valloc pvalloc"},
	/* libtcmalloc-minimal4 2.10-1 */
	{LIBRARIES "libtcmalloc_minimal.so.4",
	 "39dfd4a5855703fa6c2469749282f75b18a1aa66",
	 {{"malloc", 0xa},
	  {"calloc", 0},
	  {"realloc", 0},
	  {"memalign", 0xa},
	  {"free", 0xa},
	  {"_Znwm", 0xa},
	  {"_ZnwmRKSt9nothrow_t", 0xa},
	  {"_ZnwmSt11align_val_t", 0xd}},
	 "posix_memalign tc_valloc pvalloc"},
	/* libmimalloc2.0 2.0.9+ds-2 */
	{LIBRARIES "libmimalloc.so.2",
	 "d07f4e7dc9a039fcbe7747f416476bd65cb48e8b",
	 {{"malloc", 0x15},
	  {"calloc", 0x12},
	  {"mi_heap_realloc", 2},
	  {"_Znwm", 0},
	  {"mi_new_nothrow", 7},
	  {"free", 0x4c}},
	 "posix_memalign memalign aligned_alloc valloc pvalloc reallocarray mi_realloc "
	 "_ZnwmRKSt9nothrow_t mi_malloc_aligned"},
	/* libclang-rt-14-dev 14.0.6 */
	{"/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.scudo_standalone-x86_64.so",
	 "28b23c0cff4ed3b52f5bbd12bf0b90029e249052",
	 {{"malloc", 0},
	  {"calloc", 0},
	  {"realloc", 0},
	  {"memalign", 0},
	  {"aligned_alloc", 0},
	  {"posix_memalign", 0},
	  {"_Znwm", 0},
	  {"_Znam", 0},
	  {"_ZdlPv", 0},
	  {"_ZdlPvm", 0},
	  {"free", 0}},
	 ""},
};

static const struct known_library musl = {
	/* musl 1.2.3-1 */
	"/lib/ld-musl-x86_64.so.1",
	"54d00df44fce62f541ca62b56bdef5bf31ff077c",
	{{"malloc", 0}, {"realloc", 0}, {"aligned_alloc", 0}, {"free", 0}},
	"calloc memalign posix_memalign valloc reallocarray",
};

static bool is_here(const struct known_library *known)
{
	struct image *image;
	bool same;

	if (access(known->path, R_OK)) {
		print_message("# SKIP %s: not installed\n", known->path);
		return false;
	}
	image = fixture_open(known->path);
	same = !strcmp(image_build_id(image), known->build_id);
	image_free(image);
	if (!same)
		print_message("# SKIP %s: another build\n", known->path);
	return same;
}

static void check_known(const struct linked *linked, uint32_t module,
			const struct known_library *known)
{
	char copy[256], *rest = copy, *name;

	for (size_t i = 0; i < ARRAY_SIZE(known->points) && known->points[i].name; i++) {
		const struct probe_point *point =
			linked_point(linked, module, known->points[i].name);

		if (!point)
			fail_msg("%s: %s is not probed", known->path, known->points[i].name);
		assert_int_equal(point->spec.offset - point->entry_offset, known->points[i].delta);
	}
	strcpy(copy, known->left_out);
	while ((name = strsep(&rest, " ")))
		if (*name && !linked_left_out(linked, module, name))
			fail_msg("%s: %s is not left out", known->path, name);
}

/* What every glibc has in common, and every libstdc++: it only calls others. */
static void check_glibc(const struct linked *linked, uint32_t module)
{
	assert_non_null(linked_point(linked, module, "malloc"));
	assert_non_null(linked_point(linked, module, "calloc"));
	assert_non_null(linked_point(linked, module, "posix_memalign"));
	assert_int_equal(linked_point(linked, module, "realloc")->spec.flags, PROBE_SKIP_NULL_OLD);
	assert_int_equal(linked_point(linked, module, "free")->spec.ptr_reg, 7);
	assert_in_range(linked->points->modules[module].nested_count, 1, 64);
}

static void check_libstdcxx(const struct linked *linked, uint32_t module)
{
	linked_check_points(linked, module, "");
	assert_int_equal(linked->points->modules[module].left_out_count, 20);
	assert_int_equal(linked->points->modules[module].nested_count, 0);
	assert_int_equal(linked->points->modules[module].foreign_count, 0);
}

static void test_glibc(void **state)
{
	/* 99130 realloc: call malloc at 9945b, 99527; 9a280 posix_memalign at 9a2ba. */
	static const uint32_t returns[] = {0x99460, 0x9952c, 0x9a2bf};
	const struct module_points *points;
	struct linked linked;

	if (access(LIBC, R_OK))
		skip();
	linked_init(&linked, -1, NULL);
	linked_add(&linked, LIBC);
	linked_find(&linked);
	check_glibc(&linked, 0);
	if (is_here(&libc)) {
		check_known(&linked, 0, &libc);
		points = &linked.points->modules[0];
		assert_int_equal(points->nested_count, ARRAY_SIZE(returns));
		assert_int_equal(points->foreign_count, 0);
		for (size_t i = 0; i < ARRAY_SIZE(returns); i++) {
			bool found = false;

			for (size_t j = 0; j < points->nested_count; j++)
				found |= points->nested[j] == returns[i];
			assert_true(found);
		}
		assert_int_equal(linked_point(&linked, 0, "memalign")->spec.flags,
				 PROBE_SKIP_SMALL_ALIGN);
		assert_int_equal(linked_point(&linked, 0, "posix_memalign")->spec.flags, 0);
		assert_int_equal(linked_point(&linked, 0, "valloc")->spec.flags, 0);
		assert_int_equal(linked_point(&linked, 0, "pvalloc")->spec.flags, 0);
	}
	linked_fini(&linked);
}

static void test_static_glibc(void **state)
{
	struct linked linked;

	fixture_compile("static", ".c",
			"#include <malloc.h>\n#include <stdlib.h>\n"
			"int main(int c, char **v)\n"
			"{ void *p = realloc(memalign(64, c), 100), *q; posix_memalign(&q, c, c);\n"
			"  free(p); return !calloc(c, c); }\n",
			"-static");
	linked_init(&linked, -1, NULL);
	linked_add(&linked, fixture_path("static"));
	linked_find(&linked);
	check_glibc(&linked, 0);
	linked_fini(&linked);
}

static void test_musl(void **state)
{
	struct linked linked;

	if (!is_here(&musl))
		skip();
	linked_init(&linked, -1, NULL);
	linked_add(&linked, musl.path);
	linked_find(&linked);
	check_known(&linked, 0, &musl);
	assert_int_equal(linked.points->modules[0].count, 4);
	assert_int_equal(linked.points->modules[0].nested_count, 0);
	linked_fini(&linked);
}

/* As LD_PRELOAD puts them: program, allocator, libstdc++, libc. */
static void test_preloaded(void **state)
{
	if (access(LIBC, R_OK) || access(LIBSTDCXX, R_OK))
		skip();
	fixture_compile("program", ".c", "int main(void) { return 0; }", "");
	for (size_t i = 0; i < ARRAY_SIZE(known_libraries); i++) {
		struct linked linked;

		if (!is_here(&known_libraries[i]))
			continue;
		linked_init(&linked, -1, NULL);
		linked_add(&linked, fixture_path("program"));
		linked_add(&linked, known_libraries[i].path);
		linked_add(&linked, LIBSTDCXX);
		linked_add(&linked, LIBC);
		linked_find(&linked);
		linked_check_points(&linked, 0, "");
		check_known(&linked, 1, &known_libraries[i]);
		check_libstdcxx(&linked, 2);
		check_glibc(&linked, 3);
		assert_false(linked.points->truncated);
		linked_fini(&linked);
	}
}

static void test_libstdcxx(void **state)
{
	struct linked linked;

	if (access(LIBC, R_OK) || access(LIBSTDCXX, R_OK))
		skip();
	linked_init(&linked, -1, NULL);
	linked_add(&linked, LIBSTDCXX);
	linked_add(&linked, LIBC);
	linked_find(&linked);
	check_libstdcxx(&linked, 0);
	check_glibc(&linked, 1);
	assert_string_equal(linked_left_out(&linked, 0, "_Znwm")->other, "malloc");
	assert_string_equal(linked_left_out(&linked, 0, "_ZdlPv")->other, "free");
	linked_fini(&linked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_glibc),	  cmocka_unit_test(test_static_glibc),
		cmocka_unit_test(test_musl),	  cmocka_unit_test(test_preloaded),
		cmocka_unit_test(test_libstdcxx),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
