/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* profile: interning, limits of memory, sample types, and the difference of two. */
#include "profile_fixture.h"
#include "failing_malloc.h"

#include <errno.h>

#include "output/file.h"
#include "profile/diff.h"
#include "profile/pprof_read.h"

static void test_strings(void **state)
{
	struct profile *profile CLEANUP(profile) = NULL;
	char name[16];

	assert_int_equal(profile_new(&profile), 0);
	assert_int_equal(profile->string_count, 1);
	assert_string_equal(profile->strings[0], "");
	assert_int_equal(profile_string(profile, NULL), 0);
	assert_int_equal(profile_string(profile, ""), 0);
	for (unsigned int i = 1; i <= 5000; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(profile_string(profile, name), i);
	}
	for (unsigned int i = 1; i <= 5000; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(profile_string(profile, name), i);
		assert_string_equal(profile->strings[i], name);
	}
	assert_int_equal(profile->string_count, 5001);
	assert_int_equal(profile_error(profile), 0);
}

static void test_functions(void **state)
{
	struct profile *profile CLEANUP(profile) = NULL;
	struct profile_function a = {.name = 1, .system_name = 2, .filename = 3, .start_line = 4};
	struct profile_function b;

	assert_int_equal(profile_new(&profile), 0);
	assert_int_equal(profile_add_function(profile, &a), 1);
	/* Each field counts. */
	b = a, b.name = 9;
	assert_int_equal(profile_add_function(profile, &b), 2);
	b = a, b.system_name = 9;
	assert_int_equal(profile_add_function(profile, &b), 3);
	b = a, b.filename = 9;
	assert_int_equal(profile_add_function(profile, &b), 4);
	b = a, b.start_line = 9;
	assert_int_equal(profile_add_function(profile, &b), 5);
	assert_int_equal(profile_add_function(profile, &a), 1);
	assert_int_equal(profile->function_count, 5);
	assert_int_equal(profile->functions[4].start_line, 9);
}

static void test_copies(void **state)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();
	struct profile_line lines[] = {{.function = 1, .line = 7}};
	struct profile_label labels[] = {{.key = 1, .number = 5}};
	int64_t values[] = {1, 2};
	uint32_t locations[] = {1};

	assert_int_equal(profile_add_location(profile, 1, 0x400010, lines, 1), 1);
	assert_int_equal(profile_add_location(profile, 1, 0x400010, lines, 1), 2);
	profile_add_sample(profile, locations, 1, values, labels, 1);
	memset(lines, 0, sizeof(lines));
	memset(labels, 0, sizeof(labels));
	memset(values, 0, sizeof(values));
	memset(locations, 0, sizeof(locations));
	assert_int_equal(profile->locations[0].lines[0].line, 7);
	assert_int_equal(profile->samples[0].locations[0], 1);
	assert_int_equal(profile->samples[0].values[1], 2);
	assert_int_equal(profile->samples[0].labels[0].number, 5);
}

static void test_sample_types(void **state)
{
	struct profile *profile CLEANUP(profile) = NULL;
	size_t index = 99;

	assert_int_equal(profile_new(&profile), 0);
	assert_int_equal(profile_find_sample_type(profile, NULL, &index), -ENOENT);
	assert_int_equal(profile_find_sample_type(profile, "0", &index), -ENOENT);
	profile_add_sample_type(profile, "alloc_space", "bytes");
	profile_add_sample_type(profile, "space", "bytes");
	profile_add_sample_type(profile, "0", "count");
	assert_int_equal(profile_find_sample_type(profile, NULL, &index), 0);
	assert_int_equal(index, 2);
	profile->default_sample_type = profile_string(profile, "alloc_space");
	assert_int_equal(profile_find_sample_type(profile, NULL, &index), 0);
	assert_int_equal(index, 0);
	profile->default_sample_type = profile_string(profile, "no such type");
	assert_int_equal(profile_find_sample_type(profile, NULL, &index), 0);
	assert_int_equal(index, 2);
	assert_int_equal(profile_find_sample_type(profile, "inuse_space", &index), 0);
	assert_int_equal(index, 1);
	assert_int_equal(profile_find_sample_type(profile, "1", &index), 0);
	assert_int_equal(index, 1);
	/* A name goes before a number. */
	assert_int_equal(profile_find_sample_type(profile, "0", &index), 0);
	assert_int_equal(index, 2);
	assert_int_equal(profile_find_sample_type(profile, "3", &index), -ENOENT);
	assert_int_equal(profile_find_sample_type(profile, "-1", &index), -ENOENT);
	assert_int_equal(profile_find_sample_type(profile, "alloc", &index), -ENOENT);
}

static void test_subtract(void **state)
{
	struct profile *p CLEANUP(profile) = fixture_profile();
	struct profile *base CLEANUP(profile) = fixture_profile();

	/* Other ids, and another address of the mapping, for the same frames. */
	base->mappings[0].start += 0x7000000;
	base->mappings[0].limit += 0x7000000;
	fixture_sample(base, "gone main", 2, 200);
	fixture_sample(base, "same main", 3, 300);
	fixture_sample(base, "less main", 5, 500);
	fixture_sample(p, "same main", 3, 300);
	fixture_sample(p, "less main", 4, 100);
	fixture_sample(p, "fresh main", 1, 50);
	/* fixture_location() gives addresses by id: make those of equal stacks equal. */
	for (size_t i = 0; i < base->location_count; i++)
		base->locations[i].address = 0x7400000 + 64;
	for (size_t i = 0; i < p->location_count; i++)
		p->locations[i].address = 0x400000 + 64;
	assert_int_equal(profile_subtract(p, base), 0);
	assert_int_equal(p->sample_count, 3);
	assert_int_equal(p->mapping_count, 1);
	fixture_assert_text(p, "folded", 1,
			    "main;fresh 50\n"
			    "main;gone -200\n"
			    "main;less -400\n");
	fixture_assert_text(p, "folded", 0,
			    "main;fresh 1\n"
			    "main;gone -2\n"
			    "main;less -1\n");
	assert_int_equal(profile_subtract(p, p), 0);
	assert_int_equal(p->sample_count, 0);
}

static void test_subtract_keeps_apart(void **state)
{
	struct profile *p CLEANUP(profile) = fixture_profile();
	struct profile *base CLEANUP(profile) = fixture_profile();
	struct profile_label label = {.key = profile_string(p, "pid"),
				      .string = profile_string(p, "1")};
	struct profile_label other = {.key = profile_string(base, "pid"),
				      .string = profile_string(base, "2")};
	int64_t values[] = {1, 10};
	uint32_t location = fixture_location(p, "main");

	profile_add_sample(p, &location, 1, values, &label, 1);
	assert_int_equal(fixture_location(base, "main"), location);
	profile_add_sample(base, &location, 1, values, &other, 1);
	assert_int_equal(profile_subtract(p, base), 0);
	/* Equal frames, different labels. */
	assert_int_equal(p->sample_count, 2);
	assert_int_equal(p->location_count, 1);
	/* The same frames, but in another build of the file. */
	base->mappings[0].build_id = profile_string(base, "123456");
	assert_int_equal(profile_subtract(p, base), 0);
	assert_int_equal(p->sample_count, 3);
	assert_int_equal(p->location_count, 2);
}

static void test_subtract_nothing(void **state)
{
	struct profile *p CLEANUP(profile) = fixture_profile();
	uint32_t location = fixture_location(p, "main");

	for (int i = 0; i < 3; i++) {
		int64_t values[] = {1, i - 1};

		profile_add_sample(p, &location, 1, values, NULL, 0);
	}
	assert_int_equal(profile_subtract(p, NULL), 0);
	assert_int_equal(p->sample_count, 1);
	assert_int_equal(p->samples[0].values[0], 3);
	assert_int_equal(p->samples[0].values[1], 0);
}

static void test_subtract_other_types(void **state)
{
	struct profile *p CLEANUP(profile) = fixture_profile();
	struct profile *base CLEANUP(profile) = fixture_profile();

	fixture_sample(p, "main", 1, 2);
	base->sample_types[1].unit = profile_string(base, "kilobytes");
	assert_int_equal(profile_subtract(p, base), -EINVAL);
	profile_add_sample_type(base, "more", "count");
	assert_int_equal(profile_subtract(p, base), -EINVAL);
	fixture_assert_text(p, "folded", 1, "main 2\n");
}

#if FAILING_MALLOC_WORKS
static int build(struct profile **ret)
{
	struct profile_function function = {.name = 1};
	struct profile_label label = {.key = 1, .number = 2};
	struct profile *profile CLEANUP(profile) = NULL;
	int64_t value = 4096;
	char name[16];
	int err;

	err = profile_new(&profile);
	if (err)
		return err;
	profile_add_sample_type(profile, "space", "bytes");
	profile_add_comment(profile, "comment");
	profile->drop_frames = profile_string(profile, "f1.*");
	profile_add_mapping(profile, &(struct profile_mapping){.limit = 1});
	for (int i = 0; i < 40 && !profile_error(profile); i++) {
		struct profile_line lines[2];
		uint32_t location;

		snprintf(name, sizeof(name), "f%d", i);
		function.name = profile_string(profile, name);
		lines[0] = (struct profile_line){
			.function = profile_add_function(profile, &function),
		};
		lines[1] = (struct profile_line){.function = 1};
		location = profile_add_location(profile, 1, i, lines, 2);
		profile_add_sample(profile, &location, 1, &value, &label, 1);
	}
	if (profile_error(profile))
		return profile_error(profile);
	*ret = take_ptr(profile);
	return 0;
}

/* Everything that one report does. */
static int build_and_render(char *out, size_t size)
{
	static const char *const formats[] = {"pprof", "text", "folded"};
	struct profile *profile CLEANUP(profile) = NULL;
	struct profile *again CLEANUP(profile) = NULL;
	struct output_options options = {0};
	size_t written = 0;
	int err;

	err = build(&profile);
	for (size_t i = 0; i < ARRAY_SIZE(formats) && !err; i++) {
		FILE *file = fmemopen(out, size, "w");

		if (!file)
			return -ENOMEM;
		/* Unbuffered, or the buffer is one more allocation: stdio hides its failure. */
		setvbuf(file, NULL, _IONBF, 0);
		err = output_find(formats[i])->write(profile, &options, file);
		if (!i)
			written = ftell(file);
		fclose(file);
		if (!i && !err)
			err = pprof_parse(out, written, &again);
	}
	if (!err)
		err = profile_subtract(again, profile);
	if (!err && again->sample_count)
		err = -ERANGE;
	return err;
}

static void test_no_memory(void **state)
{
	static char out[1 << 16];
	long attempts = 0, failures = 0;
	int err;

	do {
		failing_malloc_countdown = ++attempts;
		err = build_and_render(out, sizeof(out));
		/* qsort() does without: that is no failure. */
		failures += err == -ENOMEM;
		if (err && err != -ENOMEM)
			break;
	} while (!failing_malloc_countdown);
	failing_malloc_countdown = 0;
	assert_int_equal(err, 0);
	assert_true(failures > 300);
	assert_in_range(attempts - failures, 1, 10);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_sample_types),
		cmocka_unit_test(test_subtract),
		cmocka_unit_test(test_subtract_keeps_apart),
		cmocka_unit_test(test_subtract_nothing),
		cmocka_unit_test(test_subtract_other_types),
#if FAILING_MALLOC_WORKS
		cmocka_unit_test(test_no_memory),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
