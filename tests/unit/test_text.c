/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* text and folded: the figures, their order and form, and names that are not to be trusted. */
#include "profile_fixture.h"

#include <errno.h>

#include "output/file.h"
#include "output/number.h"
#include "profile/diff.h"

#define HEADER "      flat  flat%   sum%        cum   cum%\n"

static void assert_number(int64_t value, const char *unit, const char *to, const char *expected)
{
	char text[NUMBER_SIZE];

	number_format(text, value, unit, to);
	assert_string_equal(text, expected);
}

static void assert_total(int64_t value, const char *unit, const char *expected)
{
	char text[NUMBER_SIZE];

	number_format_total(text, value, unit);
	assert_string_equal(text, expected);
}

static void assert_percent(int64_t value, uint64_t total, const char *expected)
{
	char text[NUMBER_SIZE];

	number_format_percent(text, value, total);
	assert_string_equal(text, expected);
}

static void test_numbers(void **state)
{
	assert_number(1536, "bytes", "kB", "1.50kB");
	assert_number(-1536, "byte", "B", "-1536B");
	assert_number(1024, "kilobytes", "MB", "1MB");
	assert_number(1, "bytes", "MB", "0");
	assert_number(-1, "bytes", "MB", "0");
	assert_number(12, "count", "count", "12");
	assert_number(12, "widgets", "widgets", "12widgets");
	assert_number(1500000000, "nanoseconds", "s", "1.50s");
	assert_number(INT64_MIN, "bytes", "PB", "-8192PB");
	assert_string_equal(number_auto_unit(1023, "bytes"), "B");
	assert_string_equal(number_auto_unit(1024, "bytes"), "kB");
	assert_string_equal(number_auto_unit(0, "bytes"), "B");
	assert_string_equal(number_auto_unit(5000, "nanoseconds"), "us");
	assert_string_equal(number_auto_unit(5000, "count"), "count");
	assert_total(2048ll * MB, "bytes", "2048.0 MB");
	assert_total(10 * 1024ll * MB, "bytes", "10.0 GB");
	assert_total(1536, "bytes", "1536 B");
	assert_total(100 * 1024, "bytes", "100.0 kB");
	assert_total(-3072ll * MB, "bytes", "-3072.0 MB");
	assert_total(123456, "count", "123456");
	assert_percent(1, 1, "  100%");
	assert_percent(1, 3, "33.33%");
	assert_percent(-1, 3, "33.33%");
	assert_percent(1, 200, "  0.5%");
	assert_percent(0, 200, "    0%");
	assert_percent(1, 0, "    0%");
}

static void test_table(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "create main start", 1, 3 * MB);
	fixture_sample(profile, "main start", 1, 1 * MB);
	fixture_sample(profile, "create other start", 2, 0);
	fixture_assert_text(profile, "text", 1,
			    "Total: 4096.0 kB\n" HEADER
			    "       3MB 75.00% 75.00%        3MB 75.00%  create\n"
			    "       1MB 25.00%   100%        4MB   100%  main\n"
			    "         0     0%   100%        4MB   100%  start\n");
	fixture_assert_text(profile, "text", 0,
			    "Total: 4\n" HEADER
			    "         3 75.00% 75.00%          3 75.00%  create\n"
			    "         1 25.00%   100%          2 50.00%  main\n"
			    "         0     0%   100%          4   100%  start\n"
			    "         0     0%   100%          2 50.00%  other\n");
}

static void test_recursion(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "f g f g f main", 1, 100);
	fixture_assert_text(profile, "text", 1,
			    "Total: 100 B\n" HEADER
			    "      100B   100%   100%       100B   100%  f\n"
			    "         0     0%   100%       100B   100%  g\n"
			    "         0     0%   100%       100B   100%  main\n");
}

static void test_difference(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "freed main", -1, -300);
	fixture_sample(profile, "grown main", 1, 100);
	fixture_assert_text(profile, "text", 1,
			    "Total: 400 B (of changes; in sum -200 B)\n" HEADER
			    "     -300B 75.00% 75.00%      -300B 75.00%  freed\n"
			    "      100B 25.00% 50.00%       100B 25.00%  grown\n"
			    "         0     0% 50.00%      -200B 50.00%  main\n");
}

static void test_inlined(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "always|some|main", 1, 100);
	fixture_sample(profile, "some other", 1, 50);
	fixture_assert_text(profile, "text", 1,
			    "Total: 150 B\n" HEADER
			    "      100B 66.67% 66.67%       100B 66.67%  always (inline)\n"
			    "       50B 33.33%   100%       150B   100%  some (partial-inline)\n"
			    "         0     0%   100%       100B 66.67%  main\n"
			    "         0     0%   100%        50B 33.33%  other\n");
	fixture_assert_text(profile, "folded", 1,
			    "main;some;always 100\n"
			    "other;some 50\n");
}

static void test_small_rows(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "big main", 1, 1000 * MB);
	fixture_sample(profile, "small main", 1, 4 * MB);
	fixture_sample(profile, "tiny main", 1, 1);
	fixture_assert_text(profile, "text", 1,
			    "Total: 1004.0 MB\n"
			    "Dropped 2 nodes (cum <= 5.02MB)\n" HEADER
			    "    1000MB 99.60% 99.60%     1000MB 99.60%  big\n"
			    "         0     0% 99.60%     1004MB   100%  main\n");
}

static void test_places_without_names(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();
	int64_t values[] = {1, 100};
	uint32_t location;

	fixture_sample(profile, ". . main", 1, 100);
	location = profile_add_location(profile, 0, 0x7f00beef, NULL, 0);
	profile_add_sample(profile, &location, 1, values, NULL, 0);
	profile_add_sample(profile, NULL, 0, values, NULL, 0);
	fixture_assert_text(profile, "text", 1,
			    "Total: 300 B\n" HEADER
			    "      100B 33.33% 33.33%       100B 33.33%  <unknown>\n"
			    "      100B 33.33% 66.67%       100B 33.33%  [prog]\n"
			    "         0     0% 66.67%       100B 33.33%  main\n");
	fixture_assert_text(profile, "folded", 1,
			    "0x7f00beef 100\n"
			    "<unknown> 100\n"
			    "main;prog+0x1020;prog+0x1010 100\n");
}

static void test_hostile_names(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "\033[31mred;x main", 1, 100);
	fixture_assert_text(profile, "folded", 1, "main;?[31mred:x 100\n");
	fixture_assert_text(profile, "text", 1,
			    "Total: 100 B\n" HEADER
			    "      100B   100%   100%       100B   100%  ?[31mred;x\n"
			    "         0     0%   100%       100B   100%  main\n");
}

static void test_folded_merges(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "b main", 1, 10);
	fixture_sample(profile, "a main", 1, 5);
	fixture_sample(profile, "b main", 1, 20);
	fixture_sample(profile, "c main", 1, 7);
	fixture_sample(profile, "c main", -1, -7);
	fixture_assert_text(profile, "folded", 1, "main;a 5\nmain;b 30\n");
}

static void test_nothing(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();
	struct output_options options = {.sample_index = 2};

	fixture_assert_text(profile, "text", 1, "Total: 0 B\n" HEADER);
	fixture_assert_text(profile, "folded", 1, "");
	assert_int_equal(output_find("text")->write(profile, &options, stdout), -EINVAL);
	assert_int_equal(output_find("folded")->write(profile, &options, stdout), -EINVAL);
	assert_null(output_find("svg"));
}

static void test_extreme_values(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();

	fixture_sample(profile, "a main", INT64_MIN, INT64_MIN);
	fixture_sample(profile, "b main", INT64_MAX, INT64_MAX);
	fixture_sample(profile, "b main", INT64_MAX, INT64_MAX);
	free(fixture_render(profile, "text", 1, NULL));
	free(fixture_render(profile, "folded", 1, NULL));
	assert_int_equal(profile_subtract(profile, profile), 0);
	assert_int_equal(profile->sample_count, 0);
}

static void test_full_device(void **state)
{
	static const char *const formats[] = {"text", "folded", "pprof"};
	struct profile *profile CLEANUP(profile) = fixture_profile();
	struct output_options options = {.sample_index = 1};

	fixture_sample(profile, "a main", 1, 1);
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		FILE *file = fopen("/dev/full", "w");

		if (!file)
			skip();
		setvbuf(file, NULL, _IONBF, 0);
		assert_int_equal(output_find(formats[i])->write(profile, &options, file), -ENOSPC);
		fclose(file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_recursion),
		cmocka_unit_test(test_difference),
		cmocka_unit_test(test_inlined),
		cmocka_unit_test(test_small_rows),
		cmocka_unit_test(test_places_without_names),
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_folded_merges),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_extreme_values),
		cmocka_unit_test(test_full_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
