/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The reader of profile.proto. Messages stand in any order and refer to one another by ids that
 * need not be dense, so the bytes are walked once per kind of message, each kind after those that
 * it refers to: strings, then functions and mappings, then locations, then samples.
 *
 * Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes; 3 and 4 are groups, which
 * pprof does not read either. Unknown fields are skipped. Repeated numbers come packed or not.
 */
#include "profile/pprof_read.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "profile/id_map.h"
#include "profile/input.h"
#include "util/cleanup.h"
#include "util/cursor.h"

/* Numbers of the fields of Profile. */
enum {
	FIELD_SAMPLE_TYPE = 1,
	FIELD_SAMPLE = 2,
	FIELD_MAPPING = 3,
	FIELD_LOCATION = 4,
	FIELD_FUNCTION = 5,
	FIELD_STRING = 6,
	FIELD_DROP_FRAMES = 7,
	FIELD_KEEP_FRAMES = 8,
	FIELD_TIME_NANOS = 9,
	FIELD_DURATION_NANOS = 10,
	FIELD_PERIOD_TYPE = 11,
	FIELD_PERIOD = 12,
	FIELD_COMMENT = 13,
	FIELD_DEFAULT_SAMPLE_TYPE = 14,
};

struct field {
	unsigned int number;
	bool is_bytes;	     /* wire type 2 */
	bool is_varint;	     /* wire type 0 */
	uint64_t value;	     /* of the numeric wire types */
	struct cursor bytes; /* of wire type 2 */
};

struct array {
	uint64_t *items;
	size_t count;
	size_t capacity;
};

struct reader {
	struct profile *profile;
	struct cursor input;
	struct array strings; /* index in the file -> index in the profile */
	struct id_map mappings;
	struct id_map functions;
	struct id_map locations;
	/* Scratch space of one message. */
	struct array numbers;
	struct array values;
	struct profile_line *lines;
	size_t lines_capacity;
	struct profile_label *labels;
	size_t labels_capacity;
	int err;
};

static void bad(struct reader *r)
{
	if (!r->err)
		r->err = -EBADMSG;
}

/* Makes room for one entry after count. */
static bool reserve(struct reader *r, void *array_pointer, size_t count, size_t *capacity,
		    size_t size)
{
	void *array;

	if (count < *capacity)
		return true;
	memcpy(&array, array_pointer, sizeof(array));
	array = reallocarray(array, *capacity ? *capacity * 2 : 16, size);
	if (!array) {
		r->err = -ENOMEM;
		return false;
	}
	memcpy(array_pointer, &array, sizeof(array));
	*capacity = *capacity ? *capacity * 2 : 16;
	return true;
}

static void array_add(struct reader *r, struct array *array, uint64_t item)
{
	if (reserve(r, &array->items, array->count, &array->capacity, sizeof(item)))
		array->items[array->count++] = item;
}

/* Notes an id of the file; 0 and an id given twice are errors, the latter found by id_map_sort().
 */
static void id_add(struct reader *r, struct id_map *map, uint64_t foreign, uint32_t own)
{
	if (!r->err)
		r->err = id_map_add(map, foreign, own);
}

static void id_sort(struct reader *r, struct id_map *map)
{
	if (!r->err)
		r->err = id_map_sort(map);
}

/* The next field of a message; false at its end or at an error. */
static bool field_next(struct reader *r, struct cursor *c, struct field *ret)
{
	uint64_t key, size;

	if (r->err || !cursor_left(c))
		return false;
	*ret = (struct field){0};
	key = cursor_uleb128(c);
	/* Field numbers have 29 bits. */
	if (key >> 3 > 0x1fffffff) {
		bad(r);
		return false;
	}
	ret->number = key >> 3;
	switch (key & 7) {
	case 0:
		ret->is_varint = true;
		ret->value = cursor_uleb128(c);
		break;
	case 1:
		ret->value = cursor_u64(c);
		break;
	case 2:
		ret->is_bytes = true;
		size = cursor_uleb128(c);
		ret->bytes = cursor_init(c->pos, 0);
		if (cursor_bytes(c, size))
			ret->bytes.end += size;
		break;
	case 5:
		ret->value = cursor_u32(c);
		break;
	default:
		bad(r);
		return false;
	}
	if (c->underflow) {
		bad(r);
		return false;
	}
	return true;
}

static uint64_t field_number(struct reader *r, const struct field *field)
{
	if (!field->is_varint)
		bad(r);
	return field->value;
}

static struct cursor field_message(struct reader *r, const struct field *field)
{
	if (!field->is_bytes)
		bad(r);
	return field->bytes;
}

/* A repeated number: packed, or one of several fields. */
static void field_numbers(struct reader *r, const struct field *field, struct array *ret)
{
	struct cursor c = field->bytes;

	if (!field->is_bytes) {
		array_add(r, ret, field_number(r, field));
		return;
	}
	while (cursor_left(&c) && !r->err) {
		array_add(r, ret, cursor_uleb128(&c));
		if (c.underflow)
			bad(r);
	}
}

static uint32_t field_string(struct reader *r, const struct field *field)
{
	uint64_t index = field_number(r, field);

	if (index >= r->strings.count) {
		bad(r);
		return 0;
	}
	return r->strings.items[index];
}

static void read_string(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	char *string _cleanup_free_ = NULL;
	uint32_t index;

	if (r->err)
		return;
	/* Not more than the first NUL, if there is one. */
	string = strndup((const char *)c.pos, cursor_left(&c));
	if (!string) {
		r->err = -ENOMEM;
		return;
	}
	index = profile_string(r->profile, string);
	if (!r->strings.count && index)
		bad(r);
	array_add(r, &r->strings, index);
}

static struct profile_value_type read_value_type(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	struct profile_value_type type = {0};
	struct field f;

	while (field_next(r, &c, &f)) {
		if (f.number == 1)
			type.type = field_string(r, &f);
		else if (f.number == 2)
			type.unit = field_string(r, &f);
	}
	return type;
}

static void read_mapping(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	struct profile_mapping mapping = {0};
	uint64_t id = 0;
	struct field f;

	while (field_next(r, &c, &f)) {
		switch (f.number) {
		case 1:
			id = field_number(r, &f);
			break;
		case 2:
			mapping.start = field_number(r, &f);
			break;
		case 3:
			mapping.limit = field_number(r, &f);
			break;
		case 4:
			mapping.offset = field_number(r, &f);
			break;
		case 5:
			mapping.filename = field_string(r, &f);
			break;
		case 6:
			mapping.build_id = field_string(r, &f);
			break;
		case 7:
			mapping.has_functions = field_number(r, &f);
			break;
		case 8:
			mapping.has_filenames = field_number(r, &f);
			break;
		case 9:
			mapping.has_line_numbers = field_number(r, &f);
			break;
		case 10:
			mapping.has_inline_frames = field_number(r, &f);
			break;
		}
	}
	if (!r->err)
		id_add(r, &r->mappings, id, profile_add_mapping(r->profile, &mapping));
}

static void read_function(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	struct profile_function function = {0};
	uint64_t id = 0;
	struct field f;

	while (field_next(r, &c, &f)) {
		switch (f.number) {
		case 1:
			id = field_number(r, &f);
			break;
		case 2:
			function.name = field_string(r, &f);
			break;
		case 3:
			function.system_name = field_string(r, &f);
			break;
		case 4:
			function.filename = field_string(r, &f);
			break;
		case 5:
			function.start_line = field_number(r, &f);
			break;
		}
	}
	if (!r->err)
		id_add(r, &r->functions, id, profile_add_function(r->profile, &function));
}

static struct profile_line read_line(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	struct profile_line line = {0};
	struct field f;

	while (field_next(r, &c, &f)) {
		if (f.number == 1)
			line.function = id_map_find(&r->functions, field_number(r, &f));
		else if (f.number == 2)
			line.line = field_number(r, &f);
	}
	if (!line.function)
		bad(r);
	return line;
}

static void read_location(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	uint64_t id = 0, address = 0;
	size_t line_count = 0;
	uint32_t mapping = 0;
	struct field f;

	while (field_next(r, &c, &f)) {
		switch (f.number) {
		case 1:
			id = field_number(r, &f);
			break;
		case 2:
			/* As in pprof, one that does not exist is none. */
			mapping = id_map_find(&r->mappings, field_number(r, &f));
			break;
		case 3:
			address = field_number(r, &f);
			break;
		case 4:
			if (reserve(r, &r->lines, line_count, &r->lines_capacity,
				    sizeof(r->lines[0])))
				r->lines[line_count++] = read_line(r, &f);
			break;
		}
	}
	if (!r->err)
		id_add(r, &r->locations, id,
		       profile_add_location(r->profile, mapping, address, r->lines, line_count));
}

static struct profile_label read_label(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	struct profile_label label = {0};
	struct field f;

	while (field_next(r, &c, &f)) {
		switch (f.number) {
		case 1:
			label.key = field_string(r, &f);
			break;
		case 2:
			label.string = field_string(r, &f);
			break;
		case 3:
			label.number = field_number(r, &f);
			break;
		case 4:
			label.unit = field_string(r, &f);
			break;
		}
	}
	return label;
}

static void read_sample(struct reader *r, const struct field *field)
{
	struct cursor c = field_message(r, field);
	uint32_t *locations _cleanup_free_ = NULL;
	size_t label_count = 0;
	struct field f;

	r->numbers.count = 0;
	r->values.count = 0;
	while (field_next(r, &c, &f)) {
		switch (f.number) {
		case 1:
			field_numbers(r, &f, &r->numbers);
			break;
		case 2:
			field_numbers(r, &f, &r->values);
			break;
		case 3:
			if (reserve(r, &r->labels, label_count, &r->labels_capacity,
				    sizeof(r->labels[0])))
				r->labels[label_count++] = read_label(r, &f);
			break;
		}
	}
	if (!r->values.count || r->values.count != r->profile->sample_type_count)
		bad(r);
	if (r->err)
		return;
	locations = calloc(r->numbers.count + 1, sizeof(locations[0]));
	if (!locations) {
		r->err = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < r->numbers.count; i++) {
		locations[i] = id_map_find(&r->locations, r->numbers.items[i]);
		if (!locations[i])
			bad(r);
	}
	if (!r->err)
		profile_add_sample(r->profile, locations, r->numbers.count,
				   (const int64_t *)r->values.items, r->labels, label_count);
}

static void read_comments(struct reader *r, const struct field *field)
{
	r->numbers.count = 0;
	field_numbers(r, field, &r->numbers);
	for (size_t i = 0; i < r->numbers.count && !r->err; i++) {
		uint64_t index = r->numbers.items[i];

		if (index >= r->strings.count) {
			bad(r);
			return;
		}
		profile_add_comment(r->profile, r->profile->strings[r->strings.items[index]]);
	}
}

/* All but what has ids or refers to them. */
static void read_header(struct reader *r, const struct field *field)
{
	struct profile *profile = r->profile;
	struct profile_value_type type;

	switch (field->number) {
	case FIELD_SAMPLE_TYPE:
		type = read_value_type(r, field);
		profile_add_sample_type(profile, profile->strings[type.type],
					profile->strings[type.unit]);
		break;
	case FIELD_DROP_FRAMES:
		profile->drop_frames = field_string(r, field);
		break;
	case FIELD_KEEP_FRAMES:
		profile->keep_frames = field_string(r, field);
		break;
	case FIELD_TIME_NANOS:
		profile->time_nanos = field_number(r, field);
		break;
	case FIELD_DURATION_NANOS:
		profile->duration_nanos = field_number(r, field);
		break;
	case FIELD_PERIOD_TYPE:
		profile->period_type = read_value_type(r, field);
		break;
	case FIELD_PERIOD:
		profile->period = field_number(r, field);
		break;
	case FIELD_COMMENT:
		read_comments(r, field);
		break;
	case FIELD_DEFAULT_SAMPLE_TYPE:
		profile->default_sample_type = field_string(r, field);
		break;
	}
}

static void read_strings(struct reader *r, const struct field *field)
{
	if (field->number == FIELD_STRING)
		read_string(r, field);
}

static void read_code(struct reader *r, const struct field *field)
{
	if (field->number == FIELD_MAPPING)
		read_mapping(r, field);
	else if (field->number == FIELD_FUNCTION)
		read_function(r, field);
	else
		read_header(r, field);
}

static void read_locations(struct reader *r, const struct field *field)
{
	if (field->number == FIELD_LOCATION)
		read_location(r, field);
}

static void read_samples(struct reader *r, const struct field *field)
{
	if (field->number == FIELD_SAMPLE)
		read_sample(r, field);
}

static void walk(struct reader *r, void (*read)(struct reader *r, const struct field *field))
{
	struct cursor c = r->input;
	struct field field;

	while (field_next(r, &c, &field)) {
		read(r, &field);
		if (!r->err)
			r->err = profile_error(r->profile);
	}
}

static void reader_fini(struct reader *r)
{
	profile_free(r->profile);
	free(r->strings.items);
	free(r->mappings.pairs);
	free(r->functions.pairs);
	free(r->locations.pairs);
	free(r->numbers.items);
	free(r->values.items);
	free(r->lines);
	free(r->labels);
}

static int parse_raw(const void *data, size_t size, struct profile **ret)
{
	struct reader r __attribute__((cleanup(reader_fini))) = {
		.input = cursor_init(data, size),
	};

	if (profile_new(&r.profile) < 0)
		return -ENOMEM;
	walk(&r, read_strings);
	/* The first string, "", is what every unset field means. */
	if (!r.strings.count)
		bad(&r);
	walk(&r, read_code);
	id_sort(&r, &r.mappings);
	id_sort(&r, &r.functions);
	walk(&r, read_locations);
	id_sort(&r, &r.locations);
	walk(&r, read_samples);
	if (r.err)
		return r.err;
	*ret = take_ptr(r.profile);
	return 0;
}

int pprof_parse(const void *data, size_t size, struct profile **ret)
{
	uint8_t *raw _cleanup_free_ = NULL;
	const uint8_t *bytes = data;
	size_t raw_size = 0;
	int err;

	if (!size)
		return -ENODATA;
	if (size > PPROF_READ_MAX_BYTES)
		return -E2BIG;
	if (size < 2 || bytes[0] != 0x1f || bytes[1] != 0x8b)
		return parse_raw(data, size, ret);
	err = input_gunzip(data, size, PPROF_READ_MAX_BYTES, &raw, &raw_size);
	if (err)
		return err;
	/* A compressed nothing is no profile, unlike an empty file that may still be written. */
	return raw_size ? parse_raw(raw, raw_size, ret) : -EBADMSG;
}

int pprof_read(const char *path, struct profile **ret)
{
	uint8_t *data _cleanup_free_ = NULL;
	size_t size = 0;
	int err;

	err = input_read(path, PPROF_READ_MAX_BYTES, &data, &size);
	if (err)
		return err;
	return pprof_parse(data, size, ret);
}
