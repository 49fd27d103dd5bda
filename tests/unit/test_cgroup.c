/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* cgroup, cgroup_scope, cgroup_walk: layouts of mounts, paths as users give them, PIDs. */
#include "tree_fixture.h"

#include "failing_malloc.h"

#include "proc/cgroup_scope.h"
#include "proc/cgroup_walk.h"

static const char v2_only[] =
	"22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
	"30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";

static const char hybrid[] =
	"30 22 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n"
	"31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate\n"
	"32 30 0:28 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup "
	"rw,xattr,release_agent=/lib/agent,name=systemd\n"
	"33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	"34 30 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
	"35 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

/* A container's view: only its own part is mounted, read-only. */
static const char inner[] =
	"40 22 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";

static struct cgroup_mounts *parse(const char *text)
{
	struct cgroup_mounts *mounts = NULL;

	assert_int_equal(cgroup_mounts_parse(text, tree_root, &mounts), 0);
	return mounts;
}

static void test_mounts(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = parse(hybrid);
	char *directory;

	assert_int_equal(mounts->count, 5);
	assert_int_equal(mounts->entries[0].version, CGROUP_V2);
	assert_string_equal(mounts->entries[0].controllers, "");
	assert_string_equal(mounts->entries[1].controllers, "memory");
	assert_string_equal(mounts->entries[2].controllers, "cpu,cpuacct");
	assert_string_equal(mounts->entries[3].controllers, "blkio");
	assert_string_equal(mounts->entries[4].controllers, "name=systemd");
	directory = cgroup_mount_directory(&mounts->entries[1], "/a/b");
	assert_string_equal(directory + strlen(tree_root), "/sys/fs/cgroup/memory/a/b");
	free(directory);
	directory = cgroup_mount_directory(&mounts->entries[1], "/");
	assert_string_equal(directory + strlen(tree_root), "/sys/fs/cgroup/memory");
	free(directory);
}

static void test_odd_mounts(void **state)
{
	struct cgroup_mounts *part CLEANUP(cgroup_mounts) = parse(inner);
	struct cgroup_mounts *covered CLEANUP(cgroup_mounts) =
		parse("30 22 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n"
		      "31 30 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
		      "32 22 0:26 / /mnt/with\\040blank rw - cgroup2 none rw\n");
	struct cgroup_mounts *broken CLEANUP(cgroup_mounts) = parse(
		"\n30\n30 22 0:26 / /x rw\n30 22 0:26 / /x rw -\n30 22 0:26 / /x rw - cgroup2\n"
		"30 22 0:26 x /x rw - cgroup2 none rw\n - - - - - - - - - - - -\n"
		"30 22 0:26 / /x rw - cgroup2 none rw extra");
	char *directory;

	assert_int_equal(part->count, 1);
	assert_null(cgroup_mount_directory(&part->entries[0], "/docker/abcd"));
	assert_null(cgroup_mount_directory(&part->entries[0], "/"));
	directory = cgroup_mount_directory(&part->entries[0], "/docker/abc/x");
	assert_string_equal(directory + strlen(tree_root), "/sys/fs/cgroup/x");
	free(directory);
	assert_int_equal(covered->count, 1);
	assert_string_equal(covered->entries[0].point + strlen(tree_root), "/mnt/with blank");
	assert_int_equal(broken->count, 0);
}

static void test_process(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = parse(hybrid);
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;

	assert_int_equal(process_cgroups_parse("12:cpuset:/\n"
					       "5:cpu,cpuacct:/a:b\n"
					       "4:memory:/kubepods/x (deleted)\n"
					       "1:name=systemd:/system.slice/c.service\n"
					       "0::/system.slice/c.service\n",
					       &cgroups),
			 0);
	assert_string_equal(process_cgroups_path(cgroups, &mounts->entries[0]),
			    "/system.slice/c.service");
	assert_string_equal(process_cgroups_path(cgroups, &mounts->entries[1]), "/kubepods/x");
	assert_string_equal(process_cgroups_path(cgroups, &mounts->entries[2]), "/a:b");
	assert_null(process_cgroups_path(cgroups, &mounts->entries[3]));
	assert_string_equal(process_cgroups_find(cgroups, CGROUP_V1, "cpuacct"), "/a:b");
	assert_null(process_cgroups_find(cgroups, CGROUP_V1, "mem"));
	assert_int_equal(process_cgroups_parse("4:memory", &cgroups), -EINVAL);
	assert_int_equal(process_cgroups_parse("4:memory:x\n", &cgroups), -EINVAL);
	assert_int_equal(process_cgroups_read(tree_root, 99, &cgroups), -ESRCH);
}

static void test_below(void **state)
{
	assert_true(cgroup_path_is_below("/a/b", "/a"));
	assert_true(cgroup_path_is_below("/a", "/a"));
	assert_true(cgroup_path_is_below("/a", "/"));
	assert_false(cgroup_path_is_below("/ab", "/a"));
	assert_false(cgroup_path_is_below("/", "/a"));
	/* Outside of our cgroup namespace. */
	assert_false(cgroup_path_is_below("/../x", "/"));
}

static void check_scope(const struct cgroup_mounts *mounts, const char *path, const char *directory,
			const char *controller)
{
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
	struct scope_error error = {};
	struct stat st;

	if (cgroup_scope_find(mounts, path, &scope, &error))
		fail_msg("%s", error.text);
	assert_string_equal(scope->directory + strlen(tree_root), directory);
	assert_string_equal(scope->controller, controller);
	assert_int_equal(scope->version, *controller ? CGROUP_V1 : CGROUP_V2);
	assert_int_equal(stat(scope->directory, &st), 0);
	assert_int_equal(scope->id, st.st_ino);
}

static void check_error(const struct cgroup_mounts *mounts, const char *path, int expected,
			const char *words)
{
	struct cgroup_scope *scope = NULL;
	struct scope_error error = {};

	assert_int_equal(cgroup_scope_find(mounts, path, &scope, &error), expected);
	assert_null(scope);
	assert_non_null(strstr(error.text, words));
}

static void test_scope_v2(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = parse(v2_only);
	struct cgroup_mounts *none CLEANUP(cgroup_mounts) = parse("");
	char absolute[128];

	tree_cgroup("/sys/fs/cgroup", "1\n");
	tree_cgroup("/sys/fs/cgroup/system.slice/x.service", "10\n");
	check_scope(mounts, "/system.slice/x.service", "/sys/fs/cgroup/system.slice/x.service", "");
	check_scope(mounts, "system.slice//x.service/", "/sys/fs/cgroup/system.slice/x.service",
		    "");
	check_scope(mounts, "/sys/fs/cgroup/system.slice/x.service",
		    "/sys/fs/cgroup/system.slice/x.service", "");
	check_scope(mounts, "/", "/sys/fs/cgroup", "");
	check_scope(mounts, "/sys/fs/cgroup/", "/sys/fs/cgroup", "");
	snprintf(absolute, sizeof(absolute), "%s/sys/fs/cgroup/system.slice", tree_root);
	check_error(mounts, absolute, -ENOENT, "there is none below");
	check_error(mounts, "/nope", -ENOENT, "cgroup '/nope'");
	check_error(mounts, "", -EINVAL, "not a path");
	check_error(mounts, "/a/../b", -EINVAL, "not a path");
	check_error(mounts, "/cgroup.procs", -ENOTDIR, "no cgroup but a file");
	/* A folder without cgroup.procs. */
	check_error(mounts, "/system.slice", -ENOTDIR, "cgroup.procs");
	check_error(mounts, "/a\033[31m", -ENOENT, "/a?[31m");
	check_error(none, "/a", -ENOENT, "mount -t cgroup2");
}

static void test_scope_hybrid(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = parse(hybrid);
	char link[128];

	tree_cgroup("/sys/fs/cgroup/unified", "");
	tree_cgroup("/sys/fs/cgroup/unified/both", "10\n");
	tree_cgroup("/sys/fs/cgroup/memory/both", "10\n");
	tree_cgroup("/sys/fs/cgroup/unified/empty-in-v2", "");
	tree_cgroup("/sys/fs/cgroup/memory/empty-in-v2", "");
	tree_cgroup("/sys/fs/cgroup/cpu,cpuacct/empty-in-v2/deeper", "10\n");
	tree_cgroup("/sys/fs/cgroup/cpu,cpuacct/empty-in-v2", "");
	tree_cgroup("/sys/fs/cgroup/unified/all-empty", "");
	tree_cgroup("/sys/fs/cgroup/systemd/only-named", "10\n");
	snprintf(link, sizeof(link), "%s/sys/fs/cgroup/cpu", tree_root);
	assert_int_equal(symlink("cpu,cpuacct", link), 0);
	check_scope(mounts, "/both", "/sys/fs/cgroup/unified/both", "");
	check_scope(mounts, "/sys/fs/cgroup/memory/both", "/sys/fs/cgroup/memory/both", "memory");
	check_scope(mounts, "/empty-in-v2", "/sys/fs/cgroup/cpu,cpuacct/empty-in-v2", "cpu");
	check_scope(mounts, "/sys/fs/cgroup/cpu/empty-in-v2",
		    "/sys/fs/cgroup/cpu,cpuacct/empty-in-v2", "cpu");
	check_scope(mounts, "/all-empty", "/sys/fs/cgroup/unified/all-empty", "");
	check_scope(mounts, "/only-named", "/sys/fs/cgroup/systemd/only-named", "name=systemd");
	/* The tmpfs above the mounts is none. */
	check_error(mounts, "/sys/fs/cgroup", -ENOENT, "there is none below");
}

static void test_scope_inner(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = parse(inner);
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
	struct scope_error error;

	tree_cgroup("/sys/fs/cgroup", "1\n");
	tree_cgroup("/sys/fs/cgroup/sub", "1\n");
	check_scope(mounts, "/docker/abc/sub", "/sys/fs/cgroup/sub", "");
	check_scope(mounts, "/sub", "/sys/fs/cgroup/sub", "");
	check_scope(mounts, "/", "/sys/fs/cgroup", "");
	assert_int_equal(cgroup_scope_find(mounts, "/sys/fs/cgroup/sub", &scope, &error), 0);
	assert_string_equal(scope->path, "/docker/abc/sub");
}

static void test_pids(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = parse(v2_only);
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
	struct pid_list *list = NULL;
	char command[256];
	bool inside;

	tree_cgroup("/sys/fs/cgroup/a", "30\n10\n0\n");
	tree_cgroup("/sys/fs/cgroup/a/b", "");
	tree_cgroup("/sys/fs/cgroup/a/b/c", "20\n10\n");
	tree_cgroup("/sys/fs/cgroup/ab", "40\n");
	snprintf(command, sizeof(command), "ln -s ../ab %s/sys/fs/cgroup/a/link", tree_root);
	assert_int_equal(system(command), 0);
	assert_int_equal(cgroup_scope_open(&mounts->entries[0], "/a", &scope), 0);
	assert_int_equal(cgroup_scope_pids(scope, tree_root, &list), 0);
	assert_int_equal(list->count, 3);
	assert_int_equal(list->pids[0], 10);
	assert_int_equal(list->pids[1], 20);
	assert_int_equal(list->pids[2], 30);
	pid_list_free(list);
	tree_write("/proc/20/cgroup", "0::/a/b/c\n");
	tree_write("/proc/40/cgroup", "0::/ab\n");
	assert_int_equal(cgroup_scope_has_pid(scope, tree_root, 20, &inside), 0);
	assert_true(inside);
	assert_int_equal(cgroup_scope_has_pid(scope, tree_root, 40, &inside), 0);
	assert_false(inside);
	assert_int_equal(cgroup_scope_has_pid(scope, tree_root, 41, &inside), -ESRCH);
	/* Removed meanwhile: nobody is left. */
	snprintf(command, sizeof(command), "rm -r %s/sys/fs/cgroup/a", tree_root);
	assert_int_equal(system(command), 0);
	assert_int_equal(cgroup_scope_pids(scope, tree_root, &list), 0);
	assert_int_equal(list->count, 0);
	pid_list_free(list);
	assert_false(cgroup_is_populated(scope->directory));
}

/* This very machine: we are in our own cgroup, in every hierarchy that is mounted. */
static void test_self(void **state)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	size_t found = 0;

	assert_int_equal(cgroup_mounts_read("", &mounts), 0);
	assert_int_equal(process_cgroups_read("", getpid(), &cgroups), 0);
	for (size_t i = 0; i < mounts->count; i++) {
		const char *path = process_cgroups_path(cgroups, &mounts->entries[i]);
		struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
		struct pid_list *list CLEANUP(pid_list) = NULL;
		bool inside = false, listed = false;

		if (!path || cgroup_scope_open(&mounts->entries[i], path, &scope))
			continue;
		assert_int_equal(cgroup_scope_has_pid(scope, "", getpid(), &inside), 0);
		assert_true(inside);
		assert_int_equal(cgroup_scope_pids(scope, "", &list), 0);
		for (size_t k = 0; k < list->count; k++)
			listed |= list->pids[k] == getpid();
		assert_true(listed);
		found++;
	}
	if (!found)
		skip();
}

#if FAILING_MALLOC_WORKS
/* Every allocation fails once: an error, or the right answer where it was not needed. */
static void test_no_memory(void **state)
{
	bool done = false;

	tree_write("/proc/self/mountinfo", "%s", hybrid);
	tree_write("/proc/20/cgroup", "0::/a\n");
	tree_cgroup("/sys/fs/cgroup/unified/a", "20\n");
	for (long n = 1; !done; n++) {
		struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
		struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
		struct pid_list *list CLEANUP(pid_list) = NULL;
		struct scope_error error;
		bool inside = false;
		int err;

		failing_malloc_countdown = n;
		err = cgroup_mounts_read(tree_root, &mounts);
		if (!err)
			err = cgroup_scope_find(mounts, "/a", &scope, &error);
		if (!err)
			err = cgroup_scope_pids(scope, tree_root, &list);
		if (!err)
			err = cgroup_scope_has_pid(scope, tree_root, 20, &inside);
		done = failing_malloc_countdown;
		failing_malloc_countdown = 0;
		if (err) {
			assert_int_equal(err, -ENOMEM);
			assert_false(done);
			continue;
		}
		assert_int_equal(scope->version, CGROUP_V2);
		assert_int_equal(list->count, 1);
		assert_true(inside);
	}
}
#else
static void test_no_memory(void **state)
{
	skip();
}
#endif

#define TEST(function) cmocka_unit_test_setup_teardown(function, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_mounts),	TEST(test_odd_mounts),
		TEST(test_process),	TEST(test_below),
		TEST(test_scope_v2),	TEST(test_scope_hybrid),
		TEST(test_scope_inner), TEST(test_pids),
		TEST(test_no_memory),	cmocka_unit_test(test_self),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
