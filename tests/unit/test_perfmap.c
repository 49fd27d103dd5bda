/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* perfmap: the file of a JIT compiler, well formed, damaged, hostile and growing. */
#include "elf_fixture.h"

#include <errno.h>
#include <sys/stat.h>

#include "symbolize/perfmap.h"

static int open_text(const char *text)
{
	int fd = memfd_create("perfmap", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static struct perfmap *read_text(const char *text)
{
	_cleanup_close_ int fd = open_text(text);
	struct perfmap *perfmap;

	assert_int_equal(perfmap_new(&perfmap), 0);
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	return perfmap;
}

static const char *name_at(const struct perfmap *perfmap, uint64_t address)
{
	const char *name = perfmap_lookup(perfmap, address);

	return name ? name : "(none)";
}

static void test_lines(void **state)
{
	struct perfmap *perfmap CLEANUP(perfmap) =
		read_text("7f0000001000 10 LazyCompile:~first /tmp/a.js:1\n"
			  "0x7f0000002000 0x20 second\r\n"
			  "7F0000003000\t8   third  \n");

	assert_string_equal(name_at(perfmap, 0x7f0000001000), "LazyCompile:~first /tmp/a.js:1");
	assert_string_equal(name_at(perfmap, 0x7f000000100f), "LazyCompile:~first /tmp/a.js:1");
	assert_string_equal(name_at(perfmap, 0x7f0000001010), "(none)");
	assert_string_equal(name_at(perfmap, 0x7f0000002000), "second");
	assert_string_equal(name_at(perfmap, 0x7f0000003007), "third");
	assert_string_equal(name_at(perfmap, 0), "(none)");
	assert_int_equal(perfmap_malformed(perfmap), 0);
}

/* The memory of code that was thrown away is used again. */
static void test_later_line_wins(void **state)
{
	struct perfmap *perfmap CLEANUP(perfmap) = read_text("1000 100 old\n"
							     "1040 10 inside\n"
							     "10f0 20 over the end\n"
							     "1040 10 inside again\n");

	assert_string_equal(name_at(perfmap, 0x1000), "old");
	assert_string_equal(name_at(perfmap, 0x1048), "inside again");
	assert_string_equal(name_at(perfmap, 0x1050), "old");
	assert_string_equal(name_at(perfmap, 0x10f0), "over the end");
	assert_string_equal(name_at(perfmap, 0x110f), "over the end");
}

static void test_malformed(void **state)
{
	struct perfmap *perfmap CLEANUP(perfmap) = read_text("1000 10 good\n"
							     "\n"
							     "1000\n"
							     "1000 10\n"
							     "1000 10 \n"
							     "xyz 10 name\n"
							     "2000 zz name\n"
							     "2000 0 nothing\n"
							     " 2000 10 blank\n"
							     "-2000 10 sign\n"
							     "ffffffffffffffff 10 wraps\n"
							     "11112222333344445 10 long\n"
							     "3000 10 \033[2Jname\n"
							     "4000 10 last without an end");

	assert_string_equal(name_at(perfmap, 0x1000), "good");
	assert_string_equal(name_at(perfmap, 0x2000), "(none)");
	assert_string_equal(name_at(perfmap, 0x3000), "?[2Jname");
	assert_string_equal(name_at(perfmap, 0x4000), "(none)");
	assert_int_equal(perfmap_malformed(perfmap), 11);
}

static void test_zero_bytes(void **state)
{
	static const char text[] = "1000 10 a\0b\n2000 10 good\n";
	struct perfmap *perfmap CLEANUP(perfmap) = NULL;
	_cleanup_close_ int fd = memfd_create("perfmap", MFD_CLOEXEC);

	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	assert_int_equal(perfmap_new(&perfmap), 0);
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_string_equal(name_at(perfmap, 0x1000), "(none)");
	assert_string_equal(name_at(perfmap, 0x2000), "good");
	assert_int_equal(perfmap_malformed(perfmap), 1);
}

static void test_growth(void **state)
{
	struct perfmap *perfmap CLEANUP(perfmap) = NULL;
	_cleanup_close_ int fd = open_text("1000 10 first\n2000 10 sec");
	const char *name;

	assert_int_equal(perfmap_new(&perfmap), 0);
	assert_null(perfmap_lookup(perfmap, 0x1000));
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_string_equal(name_at(perfmap, 0x2000), "(none)");
	/* Unchanged: not read again. */
	name = perfmap_lookup(perfmap, 0x1000);
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_ptr_equal(perfmap_lookup(perfmap, 0x1000), name);
	assert_int_equal(write(fd, "ond\n", 4), 4);
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_string_equal(name_at(perfmap, 0x1000), "first");
	assert_string_equal(name_at(perfmap, 0x2000), "second");
	/* Written anew. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, "5000 10 other\n", 14, 0), 14);
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_string_equal(name_at(perfmap, 0x1000), "(none)");
	assert_string_equal(name_at(perfmap, 0x5000), "other");
}

static void test_bounds(void **state)
{
	struct perfmap *perfmap CLEANUP(perfmap) = NULL;
	_cleanup_close_ int fd = open_text("1000 10 start\n");
	char *long_name;
	int pipes[2];

	assert_int_equal(perfmap_new(&perfmap), 0);
	/* A terabyte that is a hole. */
	assert_int_equal(ftruncate(fd, 1ll << 40), 0);
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_string_equal(name_at(perfmap, 0x1000), "start");
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(perfmap_read(perfmap, pipes[0]), -EINVAL);
	assert_string_equal(name_at(perfmap, 0x1000), "start");
	close(pipes[0]);
	close(pipes[1]);
	assert_true(asprintf(&long_name, "2000 10 %0100000d\n", 1) > 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, long_name, strlen(long_name), 0), strlen(long_name));
	assert_int_equal(perfmap_read(perfmap, fd), 0);
	assert_int_equal(strlen(name_at(perfmap, 0x2000)), 1024);
	free(long_name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),	  cmocka_unit_test(test_later_line_wins),
		cmocka_unit_test(test_malformed), cmocka_unit_test(test_zero_bytes),
		cmocka_unit_test(test_growth),	  cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests_name("perfmap", tests, NULL, NULL);
}
