/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "profile/intern.h"
#include "util/arena.h"
#include "util/size.h"

struct profile_index {
	struct intern *strings;	  /* numbers are indexes of profile->strings */
	struct intern *functions; /* keys are struct function_key */
	struct arena arrays;	  /* of locations and samples */
};

/* Without padding, so that equal functions are equal bytes. */
struct function_key {
	int64_t start_line;
	uint32_t name;
	uint32_t system_name;
	uint32_t filename;
	uint32_t zero;
};

_Static_assert(sizeof(struct function_key) == 24, "function_key has no padding");

static void index_free(struct profile_index *index)
{
	if (!index)
		return;
	intern_free(index->strings);
	intern_free(index->functions);
	arena_fini(&index->arrays);
	free(index);
}
DEFINE_CLEANUP(index, struct profile_index *, index_free)

static int index_new(struct profile_index **ret)
{
	struct profile_index *index CLEANUP(index) = calloc(1, sizeof(*index));

	if (!index || intern_new(&index->strings) < 0 || intern_new(&index->functions) < 0)
		return -ENOMEM;
	*ret = take_ptr(index);
	return 0;
}

/*
 * Makes room for one more entry after count. Arrays have no stored capacity: they are doubled
 * whenever count is a power of two. Returns the array, perhaps moved, or NULL.
 */
static void *array_grow(struct profile *profile, void *array, size_t count, size_t size)
{
	void *grown;

	if (count & (count - 1))
		return array;
	/* Ids are 32 bits and count from 1. */
	if (count >= UINT32_MAX / 2) {
		profile->err = -ENOMEM;
		return NULL;
	}
	grown = reallocarray(array, count ? count * 2 : 1, size);
	if (!grown)
		profile->err = -ENOMEM;
	return grown;
}

/* A copy that the profile owns. NULL for nothing, and when memory ran out. */
static void *array_copy(struct profile *profile, const void *array, size_t count, size_t size)
{
	void *copy;

	if (!count)
		return NULL;
	copy = count <= SIZE_MAX / size ? arena_alloc(&profile->index->arrays, count * size) : NULL;
	if (copy)
		memcpy(copy, array, count * size);
	else
		profile->err = -ENOMEM;
	return copy;
}

int profile_new(struct profile **ret)
{
	struct profile *profile CLEANUP(profile) = calloc(1, sizeof(*profile));

	if (!profile || index_new(&profile->index) < 0)
		return -ENOMEM;
	profile_string(profile, "");
	if (profile->err)
		return profile->err;
	*ret = take_ptr(profile);
	return 0;
}

void profile_free(struct profile *profile)
{
	if (!profile)
		return;
	free(profile->strings);
	free(profile->sample_types);
	free(profile->mappings);
	free(profile->functions);
	free(profile->locations);
	free(profile->samples);
	free(profile->comments);
	index_free(profile->index);
	free(profile);
}

int profile_error(const struct profile *profile)
{
	return profile->err;
}

uint32_t profile_string(struct profile *profile, const char *string)
{
	struct intern *intern = profile->index->strings;
	const char **strings;
	uint32_t number;

	if (!string)
		return 0;
	/* Room first: what is interned must have its place in the array. */
	strings = array_grow(profile, profile->strings, profile->string_count, sizeof(strings[0]));
	if (!strings)
		return 0;
	profile->strings = strings;
	switch (intern_add(intern, string, strlen(string), &number)) {
	case 0:
		return number;
	case 1:
		strings[profile->string_count++] = intern_bytes(intern, number, NULL);
		return number;
	default:
		profile->err = -ENOMEM;
		return 0;
	}
}

void profile_add_sample_type(struct profile *profile, const char *type, const char *unit)
{
	struct profile_value_type *types = array_grow(profile, profile->sample_types,
						      profile->sample_type_count, sizeof(types[0]));

	if (!types)
		return;
	profile->sample_types = types;
	types[profile->sample_type_count++] = (struct profile_value_type){
		.type = profile_string(profile, type),
		.unit = profile_string(profile, unit),
	};
}

void profile_add_comment(struct profile *profile, const char *comment)
{
	uint32_t *comments =
		array_grow(profile, profile->comments, profile->comment_count, sizeof(comments[0]));

	if (!comments)
		return;
	profile->comments = comments;
	comments[profile->comment_count++] = profile_string(profile, comment);
}

uint32_t profile_add_mapping(struct profile *profile, const struct profile_mapping *mapping)
{
	struct profile_mapping *mappings =
		array_grow(profile, profile->mappings, profile->mapping_count, sizeof(mappings[0]));

	if (!mappings)
		return 0;
	profile->mappings = mappings;
	mappings[profile->mapping_count++] = *mapping;
	return profile->mapping_count;
}

uint32_t profile_add_function(struct profile *profile, const struct profile_function *function)
{
	struct function_key key = {
		.start_line = function->start_line,
		.name = function->name,
		.system_name = function->system_name,
		.filename = function->filename,
	};
	struct profile_function *functions = array_grow(
		profile, profile->functions, profile->function_count, sizeof(functions[0]));
	uint32_t number;

	if (!functions)
		return 0;
	profile->functions = functions;
	switch (intern_add(profile->index->functions, &key, sizeof(key), &number)) {
	case 0:
		return number + 1;
	case 1:
		functions[profile->function_count++] = *function;
		return number + 1;
	default:
		profile->err = -ENOMEM;
		return 0;
	}
}

uint32_t profile_add_location(struct profile *profile, uint32_t mapping, uint64_t address,
			      const struct profile_line *lines, size_t line_count)
{
	struct profile_location *locations = array_grow(
		profile, profile->locations, profile->location_count, sizeof(locations[0]));
	struct profile_line *copy;

	if (!locations)
		return 0;
	profile->locations = locations;
	copy = array_copy(profile, lines, line_count, sizeof(lines[0]));
	if (line_count && !copy)
		return 0;
	locations[profile->location_count++] = (struct profile_location){
		.mapping = mapping,
		.address = address,
		.lines = copy,
		.line_count = line_count,
	};
	return profile->location_count;
}

void profile_add_sample(struct profile *profile, const uint32_t *locations, size_t location_count,
			const int64_t *values, const struct profile_label *labels,
			size_t label_count)
{
	struct profile_sample *samples =
		array_grow(profile, profile->samples, profile->sample_count, sizeof(samples[0]));
	size_t value_count = profile->sample_type_count;
	struct profile_sample *sample;

	if (!samples)
		return;
	profile->samples = samples;
	sample = &samples[profile->sample_count];
	*sample = (struct profile_sample){
		.locations = array_copy(profile, locations, location_count, sizeof(locations[0])),
		.location_count = location_count,
		.values = array_copy(profile, values, value_count, sizeof(values[0])),
		.labels = array_copy(profile, labels, label_count, sizeof(labels[0])),
		.label_count = label_count,
	};
	if ((location_count && !sample->locations) || (value_count && !sample->values) ||
	    (label_count && !sample->labels))
		return;
	profile->sample_count++;
}

static int sample_type_named(const struct profile *profile, const char *name, size_t *ret)
{
	for (size_t i = 0; i < profile->sample_type_count; i++) {
		if (strcmp(profile->strings[profile->sample_types[i].type], name) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -ENOENT;
}

int profile_find_sample_type(const struct profile *profile, const char *name, size_t *ret)
{
	const char *inuse = "inuse_";
	uint64_t number;

	if (!profile->sample_type_count)
		return -ENOENT;
	if (!name) {
		if (!profile->default_sample_type ||
		    sample_type_named(profile, profile->strings[profile->default_sample_type],
				      ret) < 0)
			*ret = profile->sample_type_count - 1;
		return 0;
	}
	if (sample_type_named(profile, name, ret) == 0)
		return 0;
	if (strncmp(name, inuse, strlen(inuse)) == 0 &&
	    sample_type_named(profile, name + strlen(inuse), ret) == 0)
		return 0;
	if (number_parse(name, profile->sample_type_count - 1, &number) < 0)
		return -ENOENT;
	*ret = number;
	return 0;
}
