/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* cgroup_names: what is found, what is not looked for again, and what is one too many. */
#include "tree_fixture.h"

#include "cgroup_names.h"

/* As in the source. */
#define MAX_NAMES 16384

#define MOUNT "/sys/fs/cgroup"

static int setup(void **state)
{
	int err = tree_setup(state);

	tree_write("/proc/self/mountinfo", "30 22 0:26 / " MOUNT " rw - cgroup2 cgroup2 rw\n");
	return err;
}

/* A directory below the root; returns its number. */
static uint64_t make_directory(const char *path)
{
	char full[PATH_MAX];
	struct stat status;

	snprintf(full, sizeof(full), "%s%s", tree_root, path);
	assert_int_equal(mkdir(full, 0755), 0);
	assert_int_equal(stat(full, &status), 0);
	return status.st_ino;
}

static void move_directory(const char *from, const char *to)
{
	char old[PATH_MAX], new[PATH_MAX];

	snprintf(old, sizeof(old), "%s%s", tree_root, from);
	snprintf(new, sizeof(new), "%s%s", tree_root, to);
	assert_int_equal(rename(old, new), 0);
}

static void test_found(void **state)
{
	struct cgroup_names *names CLEANUP(cgroup_names) = NULL;
	uint64_t here, there;

	tree_write(MOUNT "/cgroup.procs", "%s", "");
	here = make_directory(MOUNT "/here");
	there = make_directory(MOUNT "/there");
	tree_write("/proc/7/cgroup", "0::/here\n");
	assert_int_equal(cgroup_names_new(tree_root, NULL, 7, &names), 0);
	assert_string_equal(cgroup_names_find(names, here, 7).path, "/here");
	/* It has moved on. */
	assert_string_equal(cgroup_names_find(names, there, 7).path, "/there");
	assert_string_equal(cgroup_names_find(names, there, 7).container, "");
	assert_string_equal(cgroup_names_find(names, 0, 7).path, "");
	assert_int_equal(cgroup_names_left_out(names), 0);
}

static void test_missed(void **state)
{
	struct cgroup_names *names CLEANUP(cgroup_names) = NULL;
	uint64_t gone = make_directory("/gone");

	assert_int_equal(cgroup_names_new(tree_root, NULL, 7, &names), 0);
	assert_string_equal(cgroup_names_find(names, gone, 8).path, "");
	/* Only who looks again would find it. */
	move_directory("/gone", MOUNT "/gone");
	assert_string_equal(cgroup_names_find(names, gone, 9).path, "");
	/* So many others are remembered in its place. */
	for (uint64_t id = 1; id <= 256; id++)
		cgroup_names_find(names, UINT64_MAX - id, 9);
	assert_string_equal(cgroup_names_find(names, gone, 9).path, "/gone");
	assert_int_equal(cgroup_names_left_out(names), 0);
}

static void test_too_many(void **state)
{
	struct cgroup_names *names CLEANUP(cgroup_names) = NULL;
	uint64_t first = 0, id;
	char path[64];

	make_directory("/old");
	tree_write("/proc/7/cgroup", "0::/now\n");
	assert_int_equal(cgroup_names_new(tree_root, NULL, 7, &names), 0);
	for (int i = 0; i < MAX_NAMES; i++) {
		id = make_directory(MOUNT "/now");
		assert_string_equal(cgroup_names_find(names, id, 7).path, "/now");
		first = first ? first : id;
		/* Its number is not given again. */
		snprintf(path, sizeof(path), "/old/%d", i);
		move_directory(MOUNT "/now", path);
	}
	id = make_directory(MOUNT "/now");
	assert_int_equal(cgroup_names_left_out(names), 0);
	assert_string_equal(cgroup_names_find(names, id, 7).path, "(other)");
	assert_string_equal(cgroup_names_find(names, id, 8).container, "(other)");
	assert_int_equal(cgroup_names_left_out(names), 2);
	assert_string_equal(cgroup_names_find(names, first, 7).path, "/now");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found),
		cmocka_unit_test(test_missed),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, setup, tree_teardown);
}
