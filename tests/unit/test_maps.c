/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* maps: every form of line, our own maps, and files behind mappings. */
#include "elf_fixture.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "proc/maps.h"

static int parse(const char *text, struct maps **ret)
{
	FILE *file = fmemopen((void *)text, strlen(text), "r");
	int err = maps_parse(file, ret);

	fclose(file);
	return err;
}

static void test_lines(void **state)
{
	struct maps *maps CLEANUP(maps) = NULL;

	assert_int_equal(
		parse("00400000-0040b000 r-xp 00001000 fd:102 26345      /usr/bin/a b\n"
		      "0040b000-0040c000 rw-p 00000000 00:00 0 \n"
		      "7f0000000000-7f0000001000 r--s 7fff0000 08:01 18446744073709551615 "
		      "/tmp/odd\\012name\\040\\09\\ (deleted)\n"
		      "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                  [stack]\n"
		      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
		      &maps),
		0);
	assert_int_equal(maps->count, 5);
	assert_int_equal(maps->entries[0].start, 0x400000);
	assert_int_equal(maps->entries[0].end, 0x40b000);
	assert_int_equal(maps->entries[0].offset, 0x1000);
	assert_int_equal(maps->entries[0].dev_major, 0xfd);
	assert_int_equal(maps->entries[0].dev_minor, 0x102);
	assert_int_equal(maps->entries[0].inode, 26345);
	assert_true(maps->entries[0].executable);
	assert_false(maps->entries[0].deleted);
	assert_string_equal(maps->entries[0].path, "/usr/bin/a b");
	assert_string_equal(maps->entries[1].path, "");
	assert_false(maps->entries[1].executable);
	assert_int_equal(maps->entries[2].inode, UINT64_MAX);
	assert_true(maps->entries[2].deleted);
	assert_string_equal(maps->entries[2].path, "/tmp/odd\nname \\09\\");
	assert_string_equal(maps->entries[3].path, "[stack]");
	assert_int_equal(maps->entries[4].end, 0xffffffffff601000);
	assert_true(maps->entries[4].executable);
}

static void test_find(void **state)
{
	struct maps *maps CLEANUP(maps) = NULL;

	/* As a process that maps meanwhile may show it: not in order. */
	assert_int_equal(parse("3000-4000 r-xp 00000000 00:00 0 \n"
			       "1000-2000 r-xp 00000000 00:00 0 \n",
			       &maps),
			 0);
	assert_null(maps_find(maps, 0xfff));
	assert_ptr_equal(maps_find(maps, 0x1000), &maps->entries[0]);
	assert_ptr_equal(maps_find(maps, 0x1fff), &maps->entries[0]);
	assert_null(maps_find(maps, 0x2000));
	assert_ptr_equal(maps_find(maps, 0x3000), &maps->entries[1]);
	assert_null(maps_find(maps, 0x4000));
	assert_null(maps_find(maps, UINT64_MAX));
}

static void test_broken_lines(void **state)
{
	static const char *const lines[] = {
		"\n",
		"garbage\n",
		"1000-\n",
		"-1000 r-xp 0 0:0 0\n",
		"1000-2000\n",
		"1000-2000 r-x\n",
		"1000-2000 r-xp\n",
		"1000-2000 r-xp 0\n",
		"1000-2000 r-xp 0 0\n",
		"1000-2000 r-xp 0 0:0\n",
		"1000-2000 r-xp 0 0:0 \n",
		"1000-2000 r-xp 0 0:0 x\n",
		"1000-2000 r-xp 0 0:0 5x\n",
		"1000-2000 r-xp 0 0:0 99999999999999999999\n",
		"1000-2000 r-xp 0 100000000:0 5\n",
		"2000-1000 r-xp 0 0:0 5\n",
		"1000-1000 r-xp 0 0:0 5\n",
		"11112222333344445-11112222333344446 r-xp 0 0:0 5\n",
		" 1000-2000 r-xp 0 0:0 5\n",
		"+1000-2000 r-xp 0 0:0 5\n",
	};
	struct maps *maps = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		assert_int_equal(parse(lines[i], &maps), -EINVAL);
		assert_null(maps);
	}
}

static void test_zero_byte(void **state)
{
	static char text[] = "1000-2000 r-xp 0 0:0 5 /a\0b\n";
	FILE *file _cleanup_fclose_ = fmemopen(text, sizeof(text) - 1, "r");
	struct maps *maps = NULL;

	assert_int_equal(maps_parse(file, &maps), -EINVAL);
}

static void test_many(void **state)
{
	struct maps *maps CLEANUP(maps) = NULL;
	FILE *file _cleanup_fclose_ = tmpfile();
	const size_t count = 100000;

	for (size_t i = 1; i <= count; i++)
		fprintf(file, "%zx000-%zx000 rw-p 00000000 00:00 0 \n", 2 * i, 2 * i + 1);
	rewind(file);
	assert_int_equal(maps_parse(file, &maps), 0);
	assert_int_equal(maps->count, count);
	assert_int_equal(maps_find(maps, 0x2000 * count + 5)->start, 0x2000 * count);
}

static void test_self(void **state)
{
	struct maps *maps CLEANUP(maps) = NULL;
	const struct mapping *mapping;
	struct stat st, exe;
	int fd;

	assert_int_equal(maps_read(getpid(), &maps), 0);
	mapping = maps_find(maps, (uint64_t)(uintptr_t)test_self);
	assert_non_null(mapping);
	assert_true(mapping->executable);
	fd = maps_open_file(getpid(), mapping);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(stat("/proc/self/exe", &exe), 0);
	assert_int_equal(st.st_ino, exe.st_ino);
	assert_int_equal(mapping->inode, exe.st_ino);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	mapping = maps_find(maps, (uint64_t)(uintptr_t)&st);
	assert_string_equal(mapping->path, "[stack]");
	assert_int_equal(maps_open_file(getpid(), mapping), -ENOENT);
}

static void test_deleted_file(void **state)
{
	struct maps *maps CLEANUP(maps) = NULL;
	int fd = open(fixture_path("line\nend"), O_CREAT | O_RDWR, 0600);
	const struct mapping *mapping;
	char content[4] = "";
	void *memory;

	assert_int_equal(write(fd, "data", 4), 4);
	memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	close(fd);
	unlink(fixture_path("line\nend"));
	assert_int_equal(maps_read(getpid(), &maps), 0);
	mapping = maps_find(maps, (uint64_t)(uintptr_t)memory);
	assert_string_equal(mapping->path, fixture_path("line\nend"));
	assert_true(mapping->deleted);
	fd = maps_open_file(getpid(), mapping);
	munmap(memory, 4096);
	/* map_files needs CAP_CHECKPOINT_RESTORE. */
	if (fd == -EPERM || fd == -EACCES)
		skip();
	assert_int_equal(read(fd, content, 4), 4);
	assert_memory_equal(content, "data", 4);
	close(fd);
}

static int data_file(const char *name)
{
	int fd = open(fixture_path(name), O_CREAT | O_RDWR, 0600);

	assert_int_equal(write(fd, "data", 4), 4);
	return fd;
}

/* By the time a mapping's file is opened, another may be mapped there. */
static void test_replaced_mapping(void **state)
{
	struct maps *maps CLEANUP(maps) = NULL;
	const struct mapping *mapping;
	char *memory;
	int fd;

	fd = data_file("first");
	memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	close(fd);
	assert_int_equal(maps_read(getpid(), &maps), 0);
	mapping = maps_find(maps, (uint64_t)(uintptr_t)memory);
	fd = data_file("first2");
	assert_ptr_equal(mmap(memory, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), memory);
	close(fd);
	fd = maps_open_file(getpid(), mapping);
	munmap(memory, 4096);
	if (fd == -EPERM || fd == -EACCES)
		skip();
	assert_int_equal(fd, -ENOENT);
}

static void test_no_process(void **state)
{
	struct maps *maps = NULL;
	struct mapping mapping = {.start = 1, .end = 2, .inode = 1, .path = (char *)"/etc/passwd"};

	assert_int_equal(maps_read(0x7ffffffe, &maps), -ESRCH);
	assert_int_equal(maps_open_file(0x7ffffffe, &mapping), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replaced_mapping),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_broken_lines),
		cmocka_unit_test(test_zero_byte),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_deleted_file),
		cmocka_unit_test(test_no_process),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
