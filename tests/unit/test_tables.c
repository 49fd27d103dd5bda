/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tables: requests that fail are no requests. Without maps to publish in, every build fails. */
#include "elf_fixture.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#include "unwind/tables.h"

/* A request is worked off in milliseconds: only one that was never made takes so long. */
#define PATIENCE_MS 10000

static size_t wait_for_builds(struct tables *tables, size_t count)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct tables_stats stats = {};

	for (int i = 0; i < PATIENCE_MS && stats.failed < count; i++) {
		nanosleep(&pause, NULL);
		tables_read_stats(tables, &stats);
	}
	return stats.failed;
}

static void test_failed_request(void **state)
{
	const struct upload_maps maps = {.images = -1, .tables = -1, .rules = -1};
	struct image *image CLEANUP(image) = fixture_open("/proc/self/exe");
	struct tables *tables CLEANUP(tables) = NULL;
	struct rlimit before, none;

	assert_int_equal(tables_new(&maps, &tables), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(tables_request(tables, 1, image, false), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);

	assert_int_equal(tables_request(tables, 1, image, false), 0);
	assert_int_equal(wait_for_builds(tables, 1), 1);
	/* The same again is not built; more rows are. */
	assert_int_equal(tables_request(tables, 1, image, false), 0);
	assert_int_equal(tables_request(tables, 1, image, true), 0);
	assert_int_equal(wait_for_builds(tables, 2), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
