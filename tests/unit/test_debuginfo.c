/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* debuginfo: which file is taken for an image's debug file, and which is not. */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/debuginfo.h"
#include "util/root.h"

static char build_id[64];

/* Runs a command in the fixture's folder, empty but for `full`, `other` and what setup made. */
static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void run(const char *format, ...)
{
	char command[1024], line[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	snprintf(line, sizeof(line), "cd %s && (%s) >log 2>&1", fixture_folder, command);
	assert_int_equal(system(line), 0);
}

static int setup(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	int err = fixture_setup(state);

	unsetenv("DEBUGINFOD_URLS");
	fixture_compile("full", ".c", "int main(void) { return 1; }\n", "-g -Wl,--build-id");
	fixture_compile("other", ".c", "int main(void) { return 2; }\n", "-g -Wl,--build-id");
	fixture_compile("anonymous", ".c", "int main(void) { return 3; }\n",
			"-g -Wl,--build-id=none");
	run("for f in full other anonymous; do objcopy --only-keep-debug $f $f.debug; done");
	image = fixture_open(fixture_path("full"));
	snprintf(build_id, sizeof(build_id), "%s", image_build_id(image));
	assert_int_equal(strlen(build_id), 40);
	return err;
}

/* An own folder `case` with the stripped program, for a debug file linked by name. */
static void make_case(const char *program)
{
	run("rm -rf case && mkdir -p case/.debug case/dirs && cp %s.debug case/app.debug && "
	    "strip -o case/app %s && cd case && objcopy --add-gnu-debuglink=app.debug app && "
	    "mv app.debug dirs/app.debug",
	    program, program);
}

struct found {
	struct debuginfo *debuginfo;
	struct image *image;
	struct image *debug;
};

static int find(struct found *found, const char *dir, int root_fd)
{
	const char *folder = fixture_path(dir ? dir : "");

	*found = (struct found){.image = fixture_open(fixture_path("case/app"))};
	folder = fixture_path(dir ? dir : "");
	assert_int_equal(debuginfo_new(&folder, dir != NULL, &found->debuginfo), 0);
	return debuginfo_find(found->debuginfo, found->image, root_fd, true, &found->debug);
}

static size_t refused(const struct found *found)
{
	struct debuginfo_stats stats;

	debuginfo_read_stats(found->debuginfo, &stats);
	assert_int_equal(stats.downloads, 0);
	return stats.refused;
}

static void end(struct found *found)
{
	image_free(found->debug);
	image_free(found->image);
	debuginfo_free(found->debuginfo);
}

static void expect(const char *dir, int wanted, bool refuses)
{
	struct found found;

	assert_int_equal(find(&found, dir, -1), wanted);
	assert_int_equal(refused(&found) != 0, refuses);
	if (!wanted)
		assert_true(debuginfo_has_dwarf(found.debug));
	assert_false(debuginfo_has_dwarf(found.image));
	end(&found);
}

static void test_link(void **state)
{
	make_case("full");
	expect(NULL, -ENOENT, false);
	run("cp case/dirs/app.debug case/.debug/");
	expect(NULL, 0, false);
	run("mv case/.debug/app.debug case/");
	expect(NULL, 0, false);
	run("mkdir -p roots%s/case && mv case/app.debug roots%s/case/", fixture_folder,
	    fixture_folder);
	expect(NULL, -ENOENT, false);
	expect("roots", 0, false);
}

static void test_checksum(void **state)
{
	make_case("full");
	/* The build-id is still right. */
	run("cp case/dirs/app.debug case/ && echo >>case/app.debug");
	expect(NULL, -ENOENT, true);
}

static void test_other_build_id(void **state)
{
	make_case("full");
	/* The checksum is right. */
	run("cp other.debug case/app.debug && cd case && objcopy -R .gnu_debuglink app && "
	    "objcopy --add-gnu-debuglink=app.debug app");
	expect(NULL, -ENOENT, true);
	run("mkdir -p wrong/.build-id/%.2s && cp other.debug wrong/.build-id/%.2s/%s.debug",
	    build_id, build_id, build_id + 2);
	expect("wrong", -ENOENT, true);
}

static void test_without_build_id(void **state)
{
	make_case("anonymous");
	run("cp case/dirs/app.debug case/");
	expect(NULL, 0, false);
	run("echo >>case/app.debug");
	expect(NULL, -ENOENT, true);
}

static void test_build_id_folder(void **state)
{
	make_case("full");
	run("mkdir -p ids/.build-id/%.2s && cp full.debug ids/.build-id/%.2s/%s.debug", build_id,
	    build_id, build_id + 2);
	expect(NULL, -ENOENT, false);
	expect("ids", 0, false);
}

/* A link in the target's root leads to a file in that root, or nowhere. */
static void test_root(void **state)
{
	_cleanup_close_ int root_fd = -1;
	struct found found;

	make_case("full");
	run("mkdir -p root/usr/lib/debug/.build-id/%.2s root/store && cp full.debug root/store/x "
	    "&& "
	    "ln -s /store/x root/usr/lib/debug/.build-id/%.2s/%s.debug",
	    build_id, build_id, build_id + 2);
	root_fd = root_open(fixture_path("root"));
	assert_true(root_fd >= 0);
	assert_int_equal(find(&found, NULL, root_fd), 0);
	end(&found);
	run("rm root/store/x && ln -s ../../../..%s/full.debug root/store/x", fixture_folder);
	assert_int_equal(find(&found, NULL, root_fd), -ENOENT);
	end(&found);
}

static void test_not_files(void **state)
{
	make_case("full");
	run("mkfifo case/app.debug");
	expect(NULL, -ENOENT, false);
	run("rm case/app.debug && mkdir case/app.debug");
	expect(NULL, -ENOENT, false);
	run("rmdir case/app.debug && echo text >case/app.debug");
	expect(NULL, -ENOENT, false);
	/* The program itself is no debug file of its own. */
	run("cd case && rm app.debug && cp app app.debug && objcopy --add-gnu-debuglink=app.debug "
	    "-R .gnu_debuglink app linked && ln -f linked app.debug && mv -f linked app");
	expect(NULL, -ENOENT, false);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct image *debug CLEANUP(image) = NULL;
	struct debuginfo *debuginfo CLEANUP(debuginfo) = NULL;

	if (image_open(fd, "/nowhere/damaged", &image))
		return;
	assert_int_equal(debuginfo_new(NULL, 0, &debuginfo), 0);
	debuginfo_has_dwarf(image);
	debuginfo_find(debuginfo, image, -1, true, &debug);
}

static void test_damage(void **state)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t size;

	make_case("full");
	bytes = fixture_read(fixture_path("case/app"), &size);
	fixture_damage(bytes, size, check_damaged);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_link),
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_other_build_id),
		cmocka_unit_test(test_without_build_id),
		cmocka_unit_test(test_build_id_folder),
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_not_files),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests_name("debuginfo", tests, setup, fixture_teardown);
}
