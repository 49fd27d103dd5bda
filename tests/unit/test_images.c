/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* images: what becomes of a file that is first met in a process that is gone when it is looked at.
 */
#include "elf_fixture.h"

#include <sys/wait.h>

#include "proc/maps.h"
#include "symbolize/images.h"

#define ID 7

static int identify(void *arg, const int *fds, size_t count, uint32_t *ids)
{
	for (size_t i = 0; i < count; i++)
		ids[i] = ID;
	return 0;
}

/* A PID that nobody has. */
static pid_t gone_process(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return pid;
}

static struct images *new_images(void)
{
	struct images *images = NULL;

	assert_int_equal(images_new(identify, NULL, &images), 0);
	return images;
}

static void test_file_after_name(void **state)
{
	const struct image_sight sight = {
		.id = ID,
		.tgid = gone_process(),
		.start = 0x1000,
		.end = 0x3000,
		.offset = 0x1000,
		.file_size = 0x9000,
		.name = "short",
	};
	struct images *images CLEANUP(images) = new_images();
	struct maps *maps CLEANUP(maps) = NULL;
	char exe[4096] = "";
	struct image_entry early, entry;
	struct image *image;

	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	assert_int_equal(images_add_sight(images, &sight), 0);
	assert_true(images_read(images, ID, &early));
	assert_null(early.image);
	assert_string_equal(early.path, "short");
	assert_true(early.located);
	assert_false(images_read_main(images, &entry));

	image = fixture_open(exe);
	assert_int_equal(images_add_file(images, ID, image), 0);
	assert_true(images_read(images, ID, &entry));
	assert_ptr_equal(entry.image, image);
	assert_string_equal(entry.path, exe);
	assert_false(entry.located);
	assert_true(images_read_main(images, &entry));
	/* Another thread may still write what it has read before. */
	assert_string_equal(early.path, "short");

	assert_false(images_all_located(images));
	assert_int_equal(maps_read(getpid(), &maps), 0);
	images_locate(images, maps);
	assert_true(images_read(images, ID, &entry));
	assert_true(entry.located);
	assert_string_equal(maps_find(maps, entry.start)->path, exe);
}

static void test_known_file(void **state)
{
	const struct image_sight sight = {.id = ID, .tgid = gone_process(), .name = "short"};
	struct images *images CLEANUP(images) = new_images();
	struct image *image = fixture_open("/proc/self/exe");
	struct image_entry entry;

	assert_int_equal(images_add_file(images, ID, image), 0);
	/* Neither takes its place. */
	assert_int_equal(images_add_file(images, ID, fixture_open("/proc/self/exe")), 0);
	assert_int_equal(images_add_sight(images, &sight), 0);
	assert_true(images_read(images, ID, &entry));
	assert_ptr_equal(entry.image, image);
	assert_string_equal(entry.path, "/proc/self/exe");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file_after_name),
		cmocka_unit_test(test_known_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
