/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* coverage and symbol_source: what an image's code and names are known by. */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/symbol_source.h"
#include "failing_malloc.h"
#include "unwind/coverage.h"

/* Functions of 4 KiB: with and without unwind information, then what nothing names. */
static const char source[] = "	.text\n"
			     "	.globl _start\n"
			     "	.type _start,@function\n"
			     "_start:	.cfi_startproc\n"
			     "	.fill 4095,1,0x90\n"
			     "	ret\n"
			     "	.cfi_endproc\n"
			     "	.size _start,.-_start\n"
			     "	.type second,@function\n"
			     "second:	.cfi_startproc\n"
			     "	.fill 4086,1,0x90\n"
			     "	ret\n"
			     "	.cfi_endproc\n"
			     "	.size second,.-second\n"
			     "	.fill 9,1,0xcc\n"
			     "	.type third,@function\n"
			     "third:	.fill 4095,1,0x90\n"
			     "	ret\n"
			     "	.size third,.-third\n"
			     "	.fill 4000,1,0xcc\n"
			     "last:\n";

static int setup(void **state)
{
	int err = fixture_setup(state);

	fixture_compile("described", ".s", source, "-nostdlib -static");
	fixture_compile("stripped", ".s", source, "-nostdlib -static -s");
	fixture_compile("split", ".c", "int main(void) { return 0; }", "-g");
	return err;
}

static struct coverage measure(const char *name)
{
	struct image *image CLEANUP(image) = fixture_open(fixture_path(name));
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct coverage coverage;

	if (symtab_load(image, &symtab))
		symtab = NULL;
	assert_int_equal(coverage_of_code(image, symtab, &coverage), 0);
	return coverage;
}

static void test_coverage(void **state)
{
	struct coverage coverage = measure("described");

	assert_int_equal(coverage.code, 3 * 4096 + 4000);
	/* The nine bytes of padding belong to what follows them. */
	assert_int_equal(coverage.described, 2 * 4096 - 9);
	assert_int_equal(coverage.decoded, 4096 + 9);
}

/* Half of it described is not sparse: what no symbol names is no code to decode. */
static void test_stripped(void **state)
{
	struct coverage coverage = measure("stripped");

	assert_int_equal(coverage.code, 3 * 4096 + 4000);
	assert_true(coverage.described <= 2 * 4096);
	assert_true(coverage.described + coverage.decoded <= coverage.code);
}

/* A whole library: next to everything is described. */
static void test_library(void **state)
{
	struct image *image CLEANUP(image) = fixture_open("/usr/lib/x86_64-linux-gnu/libc.so.6");
	struct coverage coverage;

	assert_int_equal(coverage_of_code(image, NULL, &coverage), 0);
	assert_true(coverage.described > coverage.code * 98 / 100);
	assert_true(coverage.described <= coverage.code);
}

static enum symbol_source find_source(const char *name)
{
	struct image *image CLEANUP(image) = fixture_open(fixture_path(name));
	struct debuginfo *debuginfo CLEANUP(debuginfo) = NULL;
	const char *dirs[] = {fixture_folder};
	enum symbol_source found = -1;

	assert_int_equal(debuginfo_new(dirs, 1, &debuginfo), 0);
	assert_int_equal(symbol_source_find(image, debuginfo, -1, &found), 0);
	return found;
}

static void test_names(void **state)
{
	char command[512];

	assert_int_equal(find_source("described"), SYMBOL_SOURCE_OWN);
	assert_int_equal(find_source("stripped"), SYMBOL_SOURCE_NONE);
	fixture_compile("exports", ".c", "int f(void) { return 1; }", "-shared -fPIC -s");
	assert_int_equal(find_source("exports"), SYMBOL_SOURCE_DYNAMIC);
	snprintf(command, sizeof(command),
		 "cd %s && objcopy --only-keep-debug split split.debug && "
		 "objcopy -g --strip-all --add-gnu-debuglink=split.debug split",
		 fixture_folder);
	assert_int_equal(system(command), 0);
	assert_int_equal(find_source("split"), SYMBOL_SOURCE_DEBUG);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct debuginfo *debuginfo CLEANUP(debuginfo) = NULL;
	struct coverage coverage;
	enum symbol_source found;

	if (image_open(fd, "damaged", &image))
		return;
	if (!coverage_of_code(image, NULL, &coverage))
		assert_true(coverage.described + coverage.decoded <= coverage.code);
	assert_int_equal(debuginfo_new(NULL, 0, &debuginfo), 0);
	symbol_source_find(image, debuginfo, -1, &found);
}

static void test_damaged(void **state)
{
	size_t size;
	uint8_t *bytes = fixture_read(fixture_path("exports"), &size);

	fixture_damage(bytes, size, check_damaged);
	free(bytes);
}

static void test_no_memory(void **state)
{
	struct image *image CLEANUP(image) = fixture_open(fixture_path("described"));
	int err = -ENOMEM;

	if (!FAILING_MALLOC_WORKS)
		skip();
	for (long i = 1; err == -ENOMEM; i++) {
		struct coverage coverage;

		failing_malloc_countdown = i;
		err = coverage_of_code(image, NULL, &coverage);
		failing_malloc_countdown = 0;
	}
	assert_true(!err || err == -ENOENT || err == -ENOEXEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_coverage), cmocka_unit_test(test_stripped),
		cmocka_unit_test(test_library),	 cmocka_unit_test(test_names),
		cmocka_unit_test(test_damaged),	 cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
