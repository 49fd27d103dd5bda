/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Profiles put together in a few lines, their renderings as strings, and failing allocations. */
#ifndef TESTS_PROFILE_FIXTURE_H
#define TESTS_PROFILE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "output/output.h"
#include "profile/profile.h"

#define MB (1 << 20)

/* Sample types objects/count and space/bytes, and a mapping /usr/bin/prog. */
static inline struct profile *fixture_profile(void)
{
	struct profile_mapping mapping = {.start = 0x400000, .limit = 0x500000, .offset = 0x1000};
	struct profile *profile;

	assert_int_equal(profile_new(&profile), 0);
	profile_add_sample_type(profile, "inuse_objects", "count");
	profile_add_sample_type(profile, "inuse_space", "bytes");
	mapping.filename = profile_string(profile, "/usr/bin/prog");
	mapping.build_id = profile_string(profile, "abcdef");
	mapping.has_functions = true;
	assert_int_equal(profile_add_mapping(profile, &mapping), 1);
	return profile;
}

/*
 * A location for a list of names, the innermost inlined call first, separated by "|"; "" is a
 * location without lines. Its address follows from its id.
 */
static inline uint32_t fixture_location(struct profile *profile, const char *names)
{
	uint64_t address = 0x400000 + 16 * (profile->location_count + 1);
	struct profile_line lines[8];
	size_t count = 0;
	char copy[256];

	snprintf(copy, sizeof(copy), "%s", names);
	for (char *name = strtok(copy, "|"); name; name = strtok(NULL, "|")) {
		struct profile_function function = {.name = profile_string(profile, name)};

		function.system_name = function.name;
		lines[count++] = (struct profile_line){
			.function = profile_add_function(profile, &function),
			.line = 10,
		};
	}
	return profile_add_location(profile, 1, address, lines, count);
}

/* A sample of a stack of names, leaf first, separated by blanks. */
static inline void fixture_sample(struct profile *profile, const char *stack, int64_t objects,
				  int64_t bytes)
{
	int64_t values[] = {objects, bytes};
	uint32_t locations[32];
	size_t count = 0;
	char copy[512], *rest;

	snprintf(copy, sizeof(copy), "%s", stack);
	for (char *names = strtok_r(copy, " ", &rest); names; names = strtok_r(NULL, " ", &rest)) {
		/* A dot stands for a place without a name. */
		locations[count++] = fixture_location(profile, strcmp(names, ".") ? names : "");
	}
	profile_add_sample(profile, locations, count, values, NULL, 0);
	assert_int_equal(profile_error(profile), 0);
}

/* The caller frees the text. */
static inline char *fixture_render(const struct profile *profile, const char *format,
				   size_t sample_index, size_t *ret_size)
{
	struct output_options options = {.sample_index = sample_index};
	size_t size;
	char *text;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	assert_int_equal(output_find(format)->write(profile, &options, file), 0);
	assert_int_equal(fclose(file), 0);
	if (ret_size)
		*ret_size = size;
	return text;
}

static inline void fixture_assert_text(const struct profile *profile, const char *format,
				       size_t sample_index, const char *expected)
{
	char *text = fixture_render(profile, format, sample_index, NULL);

	assert_string_equal(text, expected);
	free(text);
}

#endif
