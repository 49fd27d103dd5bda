/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* minidebug: symbols in a compressed section, and what is no such section. */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/minidebug.h"
#include "elf/symtab.h"

/* Runs a command in the fixture's folder. */
static void run(const char *command)
{
	char line[1024];

	snprintf(line, sizeof(line), "cd %s && (%s) >log 2>&1", fixture_folder, command);
	assert_int_equal(system(line), 0);
}

/* A stripped program with the file `data` as its .gnu_debugdata. */
static struct image *open_with(const char *data)
{
	char command[512];

	snprintf(command, sizeof(command), "objcopy --add-section .gnu_debugdata=%s stripped with",
		 data);
	run(command);
	return fixture_open(fixture_path("with"));
}

static int setup(void **state)
{
	int err = fixture_setup(state);

	fixture_compile("full", ".c",
			"static __attribute__((noinline)) int hidden(int n) { return n * 3; }\n"
			"int main(int argc, char **argv) { return hidden(argc); }\n",
			"-g -O1");
	/* As Fedora's find-debuginfo does it. */
	run("strip -o stripped full && objcopy -S --remove-section=.comment full empty && "
	    "objcopy --only-keep-debug full debug && strip --strip-debug -o mini debug && "
	    "xz -k mini && head -c 100000000 /dev/zero | xz >bomb.xz && "
	    "head -c 200 mini.xz >cut.xz && echo text >text && xz -k text && "
	    "xz -9e --lzma2=preset=9,dict=512MiB -k -c mini >dictionary.xz");
	return err;
}

static void test_names(void **state)
{
	struct image *image CLEANUP(image) = open_with("mini.xz");
	struct image *full CLEANUP(image) = fixture_open(fixture_path("full"));
	struct image *mini CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL, *wanted CLEANUP(symtab) = NULL;
	uint64_t vaddr;

	assert_int_equal(symtab_load(full, &wanted), 0);
	vaddr = symtab_find(wanted, "hidden")->start;
	assert_int_equal(minidebug_open(image, &mini), 0);
	assert_string_equal(image_path(mini), image_path(image));
	assert_int_equal(symtab_load_names(image, &mini, 1, &symtab), 0);
	assert_string_equal(symtab_lookup(symtab, vaddr)->name, "hidden");
}

static int open_mini(const char *data)
{
	struct image *image CLEANUP(image) = open_with(data);
	struct image *mini CLEANUP(image) = NULL;

	return minidebug_open(image, &mini);
}

static void test_refused(void **state)
{
	struct image *image CLEANUP(image) = fixture_open(fixture_path("stripped"));
	struct image *mini = NULL;

	assert_int_equal(minidebug_open(image, &mini), -ENOENT);
	assert_int_equal(open_mini("bomb.xz"), -E2BIG);
	assert_int_equal(open_mini("dictionary.xz"), -E2BIG);
	assert_int_equal(open_mini("cut.xz"), -EBADMSG);
	assert_int_equal(open_mini("text"), -EBADMSG);
	assert_int_equal(open_mini("text.xz"), -ENOEXEC);
	assert_null(mini);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct image *mini CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;

	if (!image_open(fd, "damaged", &image) && !minidebug_open(image, &mini))
		symtab_load_names(image, &mini, 1, &symtab);
}

static void test_damage(void **state)
{
	struct image *image CLEANUP(image) = open_with("mini.xz");
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t size;

	bytes = fixture_read(fixture_path("with"), &size);
	fixture_damage(bytes, size, check_damaged);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests_name("minidebug", tests, setup, fixture_teardown);
}
