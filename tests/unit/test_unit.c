/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* unit: names as users give them, against the directories that systemd makes. */
#include "tree_fixture.h"

#include "proc/unit.h"

static const char v2_only[] = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

static const char hybrid[] = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
			     "32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup "
			     "rw,xattr,name=systemd\n"
			     "33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";

#define TOP  "/sys/fs/cgroup"
#define USER "/user.slice/user-1000.slice/user@1000.service"

static int setup(void **state)
{
	if (tree_setup(state))
		return -1;
	tree_cgroup(TOP, "");
	tree_cgroup(TOP "/init.scope", "1\n");
	tree_cgroup(TOP "/machine.slice", "");
	tree_cgroup(TOP "/system.slice/system-serial.slice", "");
	tree_cgroup(TOP USER, "");
	tree_cgroup(TOP "/system.slice/ssh.service", "10\n");
	tree_cgroup(TOP "/system.slice/getty@tty1.service", "11\n");
	tree_cgroup(TOP "/system.slice/system-serial.slice/serial@a\\x2db.service", "12\n");
	tree_cgroup(TOP "/system.slice/_cpu.service", "13\n");
	tree_cgroup(TOP "/system.slice/stopped.service", "");
	tree_cgroup(TOP "/machine.slice/machine-web.scope/payload/system.slice/ssh.service",
		    "14\n");
	tree_cgroup(TOP "/machine.slice/machine-web.scope/payload/system.slice/cron.service",
		    "15\n");
	tree_cgroup(TOP USER "/app.slice/app.service", "16\n");
	tree_cgroup(TOP USER "/app.slice/run-u1.scope", "17\n");
	tree_cgroup(TOP "/user.slice/user-1001.slice/user@1001.service/app.slice/two.service",
		    "18\n");
	tree_cgroup(TOP USER "/app.slice/two.service", "19\n");
	tree_cgroup(TOP "/system.slice/both.service", "20\n");
	tree_cgroup(TOP "/system.slice/both.scope", "21\n");
	tree_cgroup(TOP "/other/loose.service", "22\n");
	/* A unit's own folders do not count, whatever they are called. */
	tree_cgroup(TOP "/system.slice/ssh.service/ssh.service", "23\n");
	return 0;
}

static void check(const char *mountinfo, const char *name, const char *directory)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
	struct scope_error error = {};

	assert_int_equal(cgroup_mounts_parse(mountinfo, tree_root, &mounts), 0);
	if (unit_find(mounts, name, &scope, &error))
		fail_msg("%s", error.text);
	assert_string_equal(scope->directory + strlen(tree_root), directory);
}

static void check_error(const char *name, int expected, const char *words)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct cgroup_scope *scope = NULL;
	struct scope_error error = {};

	assert_int_equal(cgroup_mounts_parse(v2_only, tree_root, &mounts), 0);
	assert_int_equal(unit_find(mounts, name, &scope, &error), expected);
	assert_null(scope);
	if (!strstr(error.text, words))
		fail_msg("'%s' is not in: %s", words, error.text);
}

static void test_names(void **state)
{
	check(v2_only, "ssh", TOP "/system.slice/ssh.service");
	check(v2_only, "ssh.service", TOP "/system.slice/ssh.service");
	check(v2_only, "getty@tty1", TOP "/system.slice/getty@tty1.service");
	check(v2_only, "serial@a\\x2db.service",
	      TOP "/system.slice/system-serial.slice/serial@a\\x2db.service");
	check(v2_only, "cpu.service", TOP "/system.slice/_cpu.service");
	check(v2_only, "run-u1", TOP USER "/app.slice/run-u1.scope");
	check(v2_only, "app", TOP USER "/app.slice/app.service");
	check(v2_only, "user@1000.service", TOP USER);
	check(v2_only, "system-serial.slice", TOP "/system.slice/system-serial.slice");
	check(v2_only, "machine.slice", TOP "/machine.slice");
	check(v2_only, "init.scope", TOP "/init.scope");
	check(v2_only, "stopped", TOP "/system.slice/stopped.service");
	/* Only a container's manager has it. */
	check(v2_only, "cron",
	      TOP "/machine.slice/machine-web.scope/payload/system.slice/cron.service");
}

static void test_errors(void **state)
{
	check_error("two", -ENOTUNIQ, "user@1001.service/app.slice/two.service");
	check_error("two", -ENOTUNIQ, "\n  " USER "/app.slice/two.service");
	check_error("both", -ENOTUNIQ, "2 units");
	check_error("nope", -ENOENT, "nope.service or nope.scope");
	check_error("nope.service", -ENOENT, "systemctl list-units");
	check_error("a/b c", -ENOENT, "a-b\\x20c.service");
	check_error("loose", -ENOENT, "loose.service");
	check_error("", -EINVAL, "no unit can have this name");
}

static void test_v1(void **state)
{
	tree_cgroup(TOP "/unified", "");
	tree_cgroup(TOP "/systemd/system.slice/old.service", "30\n");
	tree_cgroup(TOP "/pids/system.slice/limited.service", "31\n");
	tree_cgroup(TOP "/systemd/system.slice/limited.service", "31\n");
	tree_cgroup(TOP "/unified/system.slice/new.service", "32\n");
	tree_cgroup(TOP "/systemd/system.slice/new.service", "32\n");
	check(hybrid, "old", TOP "/systemd/system.slice/old.service");
	check(hybrid, "limited", TOP "/pids/system.slice/limited.service");
	check(hybrid, "new", TOP "/unified/system.slice/new.service");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_names), TEST(test_errors), TEST(test_v1)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
