/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A profile in the shape of pprof's profile.proto: what the writers write, the reader reads and
 * `report` renders. Strings, mappings, functions and locations are stored once and referred to by
 * index; index 0 of strings is "", ids of the others start at 1, 0 meaning none.
 *
 * Adding functions return an id; when memory runs out they return 0 and the profile remembers it:
 * builders stay linear and ask profile_error() once.
 */
#ifndef HEAPTAP_PROFILE_PROFILE_H
#define HEAPTAP_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/cleanup.h"

struct profile_value_type {
	uint32_t type; /* strings */
	uint32_t unit;
};

struct profile_mapping {
	uint64_t start;
	uint64_t limit;
	uint64_t offset;
	uint32_t filename;
	uint32_t build_id;
	bool has_functions;
	bool has_filenames;
	bool has_line_numbers;
	bool has_inline_frames;
};

struct profile_function {
	uint32_t name;
	uint32_t system_name;
	uint32_t filename;
	int64_t start_line;
};

struct profile_line {
	uint32_t function;
	int64_t line;
};

struct profile_location {
	uint32_t mapping;
	uint64_t address;
	struct profile_line *lines; /* innermost inlined call first */
	size_t line_count;
};

struct profile_label {
	uint32_t key;
	uint32_t string; /* a string label, if not 0 */
	int64_t number;
	uint32_t unit;
};

struct profile_sample {
	uint32_t *locations; /* leaf first */
	size_t location_count;
	int64_t *values; /* one per sample type */
	struct profile_label *labels;
	size_t label_count;
};

struct profile {
	const char **strings; /* owned by the profile, like everything here */
	size_t string_count;
	struct profile_value_type *sample_types;
	size_t sample_type_count;
	struct profile_mapping *mappings; /* id is index + 1, and so below */
	size_t mapping_count;
	struct profile_function *functions;
	size_t function_count;
	struct profile_location *locations;
	size_t location_count;
	struct profile_sample *samples;
	size_t sample_count;
	uint32_t *comments;
	size_t comment_count;
	struct profile_value_type period_type;
	int64_t period;
	int64_t time_nanos;
	int64_t duration_nanos;
	uint32_t drop_frames;
	uint32_t keep_frames;
	uint32_t default_sample_type;
	int err;
	struct profile_index *index; /* private to profile.c */
};

int profile_new(struct profile **ret);
void profile_free(struct profile *profile);
DEFINE_CLEANUP(profile, struct profile *, profile_free)

/* 0, or -ENOMEM if an addition failed. */
int profile_error(const struct profile *profile);

/* The index of a string, added if it is new. NULL and "" are 0. */
uint32_t profile_string(struct profile *profile, const char *string);
void profile_add_sample_type(struct profile *profile, const char *type, const char *unit);
void profile_add_comment(struct profile *profile, const char *comment);
uint32_t profile_add_mapping(struct profile *profile, const struct profile_mapping *mapping);
/* The id of an equal function, added if it is new. */
uint32_t profile_add_function(struct profile *profile, const struct profile_function *function);
/* The lines are copied. Does not look for an equal location: the caller knows its frames. */
uint32_t profile_add_location(struct profile *profile, uint32_t mapping, uint64_t address,
			      const struct profile_line *lines, size_t line_count);
/* Everything is copied; values has sample_type_count entries. */
void profile_add_sample(struct profile *profile, const uint32_t *locations, size_t location_count,
			const int64_t *values, const struct profile_label *labels,
			size_t label_count);

/*
 * Finds a sample type by name, or by number where the profile has no such name. A leading "inuse_"
 * may be missing in the profile, as in pprof. NULL asks for the default: the profile's own, else
 * the last. Returns -ENOENT if there is none.
 */
int profile_find_sample_type(const struct profile *profile, const char *name, size_t *ret);

#endif
