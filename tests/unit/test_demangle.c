/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* demangle and symbolizer: names as people know them, and names made to hurt. */
#include "elf_fixture.h"

#include <time.h>

#include "elf/symtab.h"
#include "symbolize/demangle.h"
#include "symbolize/symbolizer.h"

static void check(const char *mangled, const char *expected)
{
	char *name = demangle(mangled);

	assert_non_null(name);
	assert_string_equal(name, expected);
	free(name);
}

static void test_languages(void **state)
{
	check("_Z3fooiPKc", "foo(int, char const*)");
	check("_ZNSt6vectorIiSaIiEE9push_backERKi",
	      "std::vector<int, std::allocator<int> >::push_back(int const&)");
	check("_ZnwmSt11align_val_t", "operator new(unsigned long, std::align_val_t)");
	check("_ZN3fooC1Ev.cold", "foo::foo() [clone .cold]");
	check("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt");
	check("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example");
	check("_D3std5stdio7writelnFZv", "std.stdio.writeln()");
}

static void test_not_mangled(void **state)
{
	static const char *const names[] = {
		"",
		"main",
		"_",
		"_Z",
		"_ZZZ",
		"_R",
		"_D",
		"_Dmalloc",
		"malloc.part.0",
		"main.main",
		"a name with blanks",
		"_ZN",
		"_ZN9999999999999999999foo",
		"\xff\xfe",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		check(names[i], names[i]);
}

static void test_long(void **state)
{
	size_t length = 70000;
	char *name _cleanup_free_ = malloc(length + 1);

	memset(name, 'x', length);
	name[length] = 0;
	check(name, name);
	memcpy(name, "_Z69990", 7);
	check(name, name);
}

/*
 * Each argument is a template of the one before, twice: the output doubles every 10 bytes, here to
 * some 150 GB. The name comes back as it is, at once.
 */
static void test_expansion(void **state)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char name[512] = "_Z1f1aIiiE", *small;
	struct timespec start, end;

	for (int i = 0; i < 32; i++) {
		sprintf(name + strlen(name), "S_IS%c_S%c_E", digits[i], digits[i]);
		if (i != 2)
			continue;
		small = demangle(name);
		assert_memory_equal(small, "f(a<int, int>, a<a<int, int>, a<int, int> >", 43);
		free(small);
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	check(name, name);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true(end.tv_sec - start.tv_sec < 20);
}

/* Every prefix of long names, and names with one byte changed. */
static void test_damage(void **state)
{
	static const char *const names[] = {
		"_ZNSt6vectorIiSaIiEE9push_backERKi",
		"_RNvMs0_NtCs5l0EXMQXRMU_21rustc_data17obligation_forestINtB5_6ForestpE6assert",
		"_RNqCs4fqI2P2rA04_11utf8_idents30____7hkackfecea1cbdathfdh9hlq6y",
		"_D8demangle4testFLC6objectQyZv",
	};
	unsigned int seed = 1;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t length = strlen(names[i]);
		char copy[256];

		for (size_t n = 0; n < 3000; n++) {
			strcpy(copy, names[i]);
			if (n <= length)
				copy[n] = 0;
			else
				copy[rand_r(&seed) % length] = 33 + rand_r(&seed) % 94;
			free(demangle(copy));
		}
	}
}

static void check_function(const char *name, const char *wanted)
{
	char *text = demangle_function(name);

	assert_string_equal(text, wanted);
	free(text);
}

static void test_parts(void **state)
{
	check_function("foo", "foo");
	check_function("foo.cold", "foo");
	check_function("foo.cold.3", "foo");
	check_function("foo.part.0", "foo");
	check_function("foo.constprop.0.isra.0.cold", "foo");
	check_function("foo.llvm.1234567890123456789", "foo");
	check_function("foo.lto_priv.0.lto_priv.1", "foo");
	check_function("foo.__uniq.123.llvm.4", "foo");
	check_function("_Z3fooi.part.0", "foo(int)");
	check_function("_ZN3foo3barEv.cold", "foo::bar()");
	check_function("_Znwm@plt", "operator new(unsigned long)@plt");
	check_function("malloc@plt", "malloc@plt");
	/* Names of their own. */
	check_function("foo.bar", "foo.bar");
	check_function("foo.avx2.0", "foo.avx2.0");
	check_function(".cold", ".cold");
	check_function("cold", "cold");
	check_function("foo.partly.0", "foo.partly.0");
	check_function("@plt", "@plt");
	check_function("", "");
	check_function("main.", "main.");
}

static void test_symbolizer(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct symbolizer *symbolizer CLEANUP(symbolizer) = NULL;
	struct symbolized_frame frame, again;
	const struct symbol *symbol;
	uint64_t offset;

	fixture_compile("names", ".s",
			"	.globl _Z3fooi\n"
			"	.type _Z3fooi,@function\n"
			"_Z3fooi: .fill 16,1,0x90\n"
			"	.size _Z3fooi,16\n"
			"	.fill 16,1,0x90\n",
			"-shared -nostdlib");
	image = fixture_open(fixture_path("names"));
	assert_int_equal(symtab_load(image, &symtab), 0);
	assert_int_equal(symbolizer_new(&(struct symbolizer_options){}, &symbolizer), 0);
	symbol = symtab_find(symtab, "_Z3fooi");
	assert_int_equal(image_vaddr_to_offset(image, symbol->start, &offset), 0);
	assert_int_equal(symbolizer_lookup(symbolizer, image, offset + 5, &frame), 0);
	assert_int_equal(frame.line_count, 1);
	assert_string_equal(frame.lines[0].name, "foo(int)");
	assert_string_equal(frame.lines[0].system_name, "_Z3fooi");
	assert_null(frame.lines[0].filename);
	assert_int_equal(frame.lines[0].line, 0);
	assert_int_equal(symbolizer_lookup(symbolizer, image, offset + 5, &again), 0);
	assert_ptr_equal(again.lines, frame.lines);
	assert_int_equal(symbolizer_lookup(symbolizer, image, offset + 20, &frame), 0);
	assert_int_equal(frame.line_count, 0);
	assert_int_equal(symbolizer_lookup(symbolizer, image, 1ull << 39, &frame), 0);
	assert_int_equal(frame.line_count, 0);
}

static void test_no_symbols(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	struct symbolizer *symbolizer CLEANUP(symbolizer) = NULL;
	struct symbolized_frame frame;

	fixture_compile("none", ".s", "	.globl _start\n_start: hlt\n", "-nostdlib -static -s");
	image = fixture_open(fixture_path("none"));
	assert_int_equal(symbolizer_new(&(struct symbolizer_options){}, &symbolizer), 0);
	assert_int_equal(symbolizer_lookup(symbolizer, image, 0, &frame), 0);
	assert_int_equal(frame.line_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_languages),  cmocka_unit_test(test_not_mangled),
		cmocka_unit_test(test_long),	   cmocka_unit_test(test_expansion),
		cmocka_unit_test(test_damage),	   cmocka_unit_test(test_symbolizer),
		cmocka_unit_test(test_no_symbols), cmocka_unit_test(test_parts),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
