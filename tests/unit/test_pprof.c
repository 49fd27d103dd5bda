/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* pprof: what is written is read back, what others write is read, and damage of every kind. */
#include "profile_fixture.h"

#include <errno.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "output/buffer.h"
#include "output/file.h"
#include "profile/input.h"
#include "profile/pprof_read.h"

static char folder[] = "/tmp/heaptap-test-XXXXXX";

/* A small encoder of its own: the writer's cannot make what is invalid. */
static void put_varint(struct buffer *b, uint64_t value)
{
	do {
		uint8_t byte = value >= 0x80 ? value | 0x80 : value;

		buffer_put(b, &byte, 1);
		value >>= 7;
	} while (value);
}

static void put_number(struct buffer *b, unsigned int field, uint64_t value)
{
	put_varint(b, field << 3);
	put_varint(b, value);
}

static void put_bytes(struct buffer *b, unsigned int field, const void *bytes, size_t size)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, size);
	buffer_put(b, bytes, size);
}

static void put_string(struct buffer *b, const char *string)
{
	put_bytes(b, 6, string, strlen(string));
}

/* A message of pairs of field and number. */
static void put_numbers(struct buffer *b, unsigned int field, size_t count, const uint64_t *numbers)
{
	struct buffer message = {0};

	for (size_t i = 0; i < count; i += 2)
		put_number(&message, numbers[i], numbers[i + 1]);
	put_bytes(b, field, message.data, message.size);
	buffer_fini(&message);
}

#define PUT(b, field, ...)                                                                         \
	put_numbers(b, field, ARRAY_SIZE(((uint64_t[]){__VA_ARGS__})), (uint64_t[]){__VA_ARGS__})

static int parse(const struct buffer *b, struct profile **ret)
{
	/* Of the very size, so that a sanitizer sees a read past the end. */
	uint8_t *copy = malloc(b->size);
	int err;

	if (b->size)
		memcpy(copy, b->data, b->size);
	err = pprof_parse(copy, b->size, ret);
	free(copy);
	return err;
}

static int parse_error(struct buffer *b)
{
	struct profile *profile = NULL;
	int err = parse(b, &profile);

	profile_free(profile);
	b->size = 0;
	return err;
}

/* Something in every field. */
static struct profile *full_profile(void)
{
	struct profile *p = fixture_profile();
	struct profile_function function = {
		.name = profile_string(p, "f(int)"),
		.system_name = profile_string(p, "_Z1fi"),
		.filename = profile_string(p, "f.c"),
		.start_line = 17,
	};
	struct profile_line lines[] = {
		{.function = profile_add_function(p, &function), .line = 20},
		{.function = 1, .line = INT32_MAX},
	};
	struct profile_mapping mapping = {
		.start = 0x7fff00000000,
		.limit = UINT64_MAX,
		.offset = 0x2000,
		.filename = profile_string(p, "/lib/libc.so.6"),
		.has_filenames = true,
		.has_line_numbers = true,
		.has_inline_frames = true,
	};
	struct profile_label labels[] = {
		{.key = profile_string(p, "bytes"),
		 .number = -48,
		 .unit = profile_string(p, "bytes")},
		{.key = profile_string(p, "comm"), .string = profile_string(p, "redis")},
	};
	int64_t values[] = {-1, INT64_MIN}, more[] = {INT64_MAX, 0};
	uint32_t locations[400];

	profile_add_mapping(p, &mapping);
	locations[0] = profile_add_location(p, 2, 0x7fff00001234, lines, 2);
	locations[1] = profile_add_location(p, 0, UINT64_MAX, NULL, 0);
	for (size_t i = 2; i < ARRAY_SIZE(locations); i++)
		locations[i] = locations[i % 2];
	profile_add_sample(p, locations, ARRAY_SIZE(locations), values, labels, 2);
	profile_add_sample(p, NULL, 0, more, NULL, 0);
	profile_add_comment(p, "first");
	profile_add_comment(p, "second");
	p->period_type.type = profile_string(p, "space");
	p->period_type.unit = profile_string(p, "bytes");
	p->period = 524288;
	p->time_nanos = 1700000000123456789;
	p->duration_nanos = 5000000000;
	p->drop_frames = profile_string(p, "malloc|calloc");
	p->keep_frames = profile_string(p, "keep");
	p->default_sample_type = profile_string(p, "inuse_space");
	assert_int_equal(profile_error(p), 0);
	return p;
}

static void assert_same_samples(const struct profile *p, const struct profile *q)
{
	assert_int_equal(p->sample_count, q->sample_count);
	for (size_t i = 0; i < p->sample_count; i++) {
		const struct profile_sample *a = &p->samples[i], *b = &q->samples[i];

		assert_int_equal(a->location_count, b->location_count);
		for (size_t j = 0; j < a->location_count; j++)
			assert_int_equal(a->locations[j], b->locations[j]);
		for (size_t j = 0; j < p->sample_type_count; j++)
			assert_int_equal(a->values[j], b->values[j]);
		assert_int_equal(a->label_count, b->label_count);
		for (size_t j = 0; j < a->label_count; j++) {
			assert_int_equal(a->labels[j].key, b->labels[j].key);
			assert_int_equal(a->labels[j].string, b->labels[j].string);
			assert_int_equal(a->labels[j].number, b->labels[j].number);
			assert_int_equal(a->labels[j].unit, b->labels[j].unit);
		}
	}
}

static void assert_same_code(const struct profile *p, const struct profile *q)
{
	assert_int_equal(p->mapping_count, q->mapping_count);
	for (size_t i = 0; i < p->mapping_count; i++) {
		const struct profile_mapping *a = &p->mappings[i], *b = &q->mappings[i];

		assert_int_equal(a->start, b->start);
		assert_int_equal(a->limit, b->limit);
		assert_int_equal(a->offset, b->offset);
		assert_int_equal(a->filename, b->filename);
		assert_int_equal(a->build_id, b->build_id);
		assert_int_equal(a->has_functions, b->has_functions);
		assert_int_equal(a->has_filenames, b->has_filenames);
		assert_int_equal(a->has_line_numbers, b->has_line_numbers);
		assert_int_equal(a->has_inline_frames, b->has_inline_frames);
	}
	assert_int_equal(p->function_count, q->function_count);
	for (size_t i = 0; i < p->function_count; i++) {
		const struct profile_function *a = &p->functions[i], *b = &q->functions[i];

		assert_int_equal(a->name, b->name);
		assert_int_equal(a->system_name, b->system_name);
		assert_int_equal(a->filename, b->filename);
		assert_int_equal(a->start_line, b->start_line);
	}
	assert_int_equal(p->location_count, q->location_count);
	for (size_t i = 0; i < p->location_count; i++) {
		const struct profile_location *a = &p->locations[i], *b = &q->locations[i];

		assert_int_equal(a->mapping, b->mapping);
		assert_int_equal(a->address, b->address);
		assert_int_equal(a->line_count, b->line_count);
		for (size_t j = 0; j < a->line_count; j++) {
			assert_int_equal(a->lines[j].function, b->lines[j].function);
			assert_int_equal(a->lines[j].line, b->lines[j].line);
		}
	}
}

static void assert_same(const struct profile *p, const struct profile *q)
{
	assert_int_equal(p->string_count, q->string_count);
	for (size_t i = 0; i < p->string_count; i++)
		assert_string_equal(p->strings[i], q->strings[i]);
	assert_int_equal(p->sample_type_count, q->sample_type_count);
	for (size_t i = 0; i < p->sample_type_count; i++) {
		assert_int_equal(p->sample_types[i].type, q->sample_types[i].type);
		assert_int_equal(p->sample_types[i].unit, q->sample_types[i].unit);
	}
	assert_same_samples(p, q);
	assert_same_code(p, q);
	assert_int_equal(p->comment_count, q->comment_count);
	for (size_t i = 0; i < p->comment_count; i++)
		assert_int_equal(p->comments[i], q->comments[i]);
	assert_int_equal(p->period_type.type, q->period_type.type);
	assert_int_equal(p->period_type.unit, q->period_type.unit);
	assert_int_equal(p->period, q->period);
	assert_int_equal(p->time_nanos, q->time_nanos);
	assert_int_equal(p->duration_nanos, q->duration_nanos);
	assert_int_equal(p->drop_frames, q->drop_frames);
	assert_int_equal(p->keep_frames, q->keep_frames);
	assert_int_equal(p->default_sample_type, q->default_sample_type);
}

static void test_round_trip(void **state)
{
	struct profile *p CLEANUP(profile) = full_profile();
	struct profile *q CLEANUP(profile) = NULL;
	struct profile *empty CLEANUP(profile) = NULL;
	struct profile *still_empty CLEANUP(profile) = NULL;
	size_t size;
	char *data = fixture_render(p, "pprof", 0, &size);

	/* pprof takes gzip only by its magic number. */
	assert_memory_equal(data, "\x1f\x8b", 2);
	assert_int_equal(pprof_parse(data, size, &q), 0);
	assert_same(p, q);
	free(data);

	assert_int_equal(profile_new(&empty), 0);
	data = fixture_render(empty, "pprof", 0, &size);
	assert_int_equal(pprof_parse(data, size, &still_empty), 0);
	assert_same(empty, still_empty);
	free(data);
}

/* More than zlib's window and our output block. */
static void test_large_round_trip(void **state)
{
	struct profile *p CLEANUP(profile) = fixture_profile();
	struct profile *q CLEANUP(profile) = NULL;
	uint64_t random = 88172645463325252ull;
	char *data, name[512];
	size_t size;

	for (int i = 0; i < 2000; i++) {
		for (size_t j = 0; j + 1 < sizeof(name); j++) {
			random ^= random << 13, random ^= random >> 7, random ^= random << 17;
			name[j] = 'a' + random % 26;
		}
		name[sizeof(name) - 1] = '\0';
		profile_add_comment(p, name);
		fixture_sample(p, "f g h", i, random);
	}
	data = fixture_render(p, "pprof", 0, &size);
	assert_true(size > 100000);
	assert_int_equal(pprof_parse(data, size, &q), 0);
	assert_same(p, q);
	free(data);
}

static void put_prologue(struct buffer *b)
{
	static const char *const strings[] = {"", "space", "bytes", "f", "g"};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
		put_string(b, strings[i]);
	PUT(b, 1, 1, 1, 2, 2);
}

/* Sparse ids, any order, numbers one by one, and fields from the future. */
static void test_foreign_form(void **state)
{
	struct profile *p CLEANUP(profile) = NULL;
	struct buffer b = {0}, location = {0}, packed = {0};
	uint64_t unknown = 1;

	PUT(&b, 2, 1, 900, 1, UINT64_MAX, 1, 900, 2, 7, 99, 5);
	put_varint(&packed, 900);
	put_bytes(&location, 1, packed.data, packed.size);
	put_number(&location, 1, UINT64_MAX);
	put_number(&location, 2, (uint64_t)-3);
	put_bytes(&b, 2, location.data, location.size);
	location.size = 0;
	put_number(&location, 1, UINT64_MAX);
	put_number(&location, 2, 12345);
	put_number(&location, 3, 0x1234);
	PUT(&location, 4, 1, 1ull << 40, 2, 5);
	PUT(&location, 4, 2, 6, 1, 70, 3, 1);
	put_number(&location, 5, 1);
	put_bytes(&b, 4, location.data, location.size);
	PUT(&b, 4, 1, 900, 2, 500);
	PUT(&b, 5, 1, 70, 2, 4);
	PUT(&b, 5, 1, 1ull << 40, 2, 3);
	PUT(&b, 3, 1, 500, 2, 0x1000);
	/* Eight and four bytes, and an unknown message. */
	put_varint(&b, 50 << 3 | 1);
	buffer_put(&b, &unknown, 8);
	put_varint(&b, 51 << 3 | 5);
	buffer_put(&b, &unknown, 4);
	put_bytes(&b, 52, "xyz", 3);
	put_number(&b, 13, 3);
	put_prologue(&b);

	assert_int_equal(parse(&b, &p), 0);
	assert_int_equal(p->sample_count, 2);
	assert_int_equal(p->samples[0].location_count, 3);
	assert_int_equal(p->samples[0].locations[0], 2);
	assert_int_equal(p->samples[0].locations[1], 1);
	assert_int_equal(p->samples[0].values[0], 7);
	assert_int_equal(p->samples[1].location_count, 2);
	assert_int_equal(p->samples[1].values[0], -3);
	/* As in pprof, a mapping that does not exist is none. */
	assert_int_equal(p->locations[0].mapping, 0);
	assert_int_equal(p->locations[1].mapping, 1);
	assert_int_equal(p->locations[0].line_count, 2);
	assert_string_equal(p->strings[p->functions[p->locations[0].lines[0].function - 1].name],
			    "f");
	assert_string_equal(p->strings[p->functions[p->locations[0].lines[1].function - 1].name],
			    "g");
	assert_int_equal(p->locations[0].lines[1].line, 6);
	assert_string_equal(p->strings[p->comments[0]], "f");
	buffer_fini(&b);
	buffer_fini(&location);
	buffer_fini(&packed);
}

static void test_invalid(void **state)
{
	struct buffer b = {0};

	assert_int_equal(parse_error(&b), -ENODATA);
	buffer_put(&b, "hello, world\n", 13);
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* No string table, or one that does not start with "". */
	put_number(&b, 9, 1);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_string(&b, "space");
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* A reference past the string table. */
	put_prologue(&b);
	put_number(&b, 14, 5);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	put_number(&b, 7, UINT64_MAX);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	put_number(&b, 13, 5);
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* Too few values, too many, none. */
	put_prologue(&b);
	PUT(&b, 2, 1, 0);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	PUT(&b, 2, 2, 1, 2, 1);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_string(&b, "");
	put_bytes(&b, 2, NULL, 0);
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* A location that does not exist. */
	put_prologue(&b);
	PUT(&b, 2, 1, 1, 2, 1);
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* A function that does not exist. */
	put_prologue(&b);
	put_bytes(&b, 4, "\x08\x01\x22\x02\x08\x07", 6);
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* A number where a message is expected, and the other way round. */
	put_prologue(&b);
	put_number(&b, 2, 1);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	put_bytes(&b, 9, "x", 1);
	assert_int_equal(parse_error(&b), -EBADMSG);
	/* A group; a number without end; a length past the end; a field number of 40 bits. */
	put_prologue(&b);
	put_varint(&b, 9 << 3 | 3);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	buffer_put(&b, "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	put_varint(&b, 6 << 3 | 2);
	put_varint(&b, UINT64_MAX);
	assert_int_equal(parse_error(&b), -EBADMSG);
	put_prologue(&b);
	put_varint(&b, 1ull << 43);
	put_varint(&b, 1);
	assert_int_equal(parse_error(&b), -EBADMSG);
	buffer_fini(&b);
}

static void test_ids(void **state)
{
	struct buffer b = {0};

	for (unsigned int field = 3; field <= 5; field++) {
		put_prologue(&b);
		PUT(&b, field, 1, 1);
		PUT(&b, field, 1, 2);
		assert_int_equal(parse_error(&b), 0);
		put_prologue(&b);
		PUT(&b, field, 1, 7);
		PUT(&b, field, 1, 9);
		PUT(&b, field, 1, 7);
		assert_int_equal(parse_error(&b), -EBADMSG);
		put_prologue(&b);
		PUT(&b, field, 2, 1);
		assert_int_equal(parse_error(&b), -EBADMSG);
	}
	buffer_fini(&b);
}

/* Of a file cut at any byte, only whole fields may be taken, and gzip knows that it is cut. */
static void test_truncated(void **state)
{
	struct profile *p CLEANUP(profile) = full_profile();
	size_t size, raw_size, accepted = 0;
	uint8_t *raw;
	char *data = fixture_render(p, "pprof", 0, &size);

	for (size_t i = 0; i < size; i++) {
		struct buffer b = {.data = (uint8_t *)data, .size = i};

		assert_int_equal(parse_error(&b), i ? -EBADMSG : -ENODATA);
	}
	assert_int_equal(input_gunzip(data, size, 1 << 20, &raw, &raw_size), 0);
	for (size_t i = 0; i < raw_size; i++) {
		struct buffer b = {.data = raw, .size = i};
		int err = parse_error(&b);

		assert_true(err == 0 || err == -EBADMSG || (err == -ENODATA && !i));
		accepted += err == 0;
	}
	/* Strings and numbers stand last: what refers to them cannot do without. */
	assert_in_range(accepted, 1, 20);
	free(raw);
	free(data);
}

static void test_flipped_bits(void **state)
{
	struct profile *p CLEANUP(profile) = full_profile();
	size_t size, raw_size;
	uint8_t *raw;
	char *data = fixture_render(p, "pprof", 0, &size);

	assert_int_equal(input_gunzip(data, size, 1 << 20, &raw, &raw_size), 0);
	for (size_t i = 0; i < raw_size * 8; i++) {
		struct buffer b = {.data = raw, .size = raw_size};
		int err;

		raw[i / 8] ^= 1 << i % 8;
		err = parse_error(&b);
		assert_true(err == 0 || err == -EBADMSG);
		raw[i / 8] ^= 1 << i % 8;
	}
	/* The checksum of gzip. */
	data[size - 8] ^= 1;
	assert_int_equal(pprof_parse(data, size, &p), -EBADMSG);
	free(raw);
	free(data);
}

static void test_limits(void **state)
{
	static uint8_t zeros[100000];
	uint8_t packed[1000], *out = NULL;
	z_stream zlib = {.next_in = zeros, .avail_in = sizeof(zeros)};
	struct profile *p = NULL;
	size_t size;

	assert_int_equal(deflateInit2(&zlib, 9, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
	zlib.next_out = packed;
	zlib.avail_out = sizeof(packed);
	assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
	deflateEnd(&zlib);
	assert_int_equal(input_gunzip(packed, zlib.total_out, sizeof(zeros) - 1, &out, &size),
			 -E2BIG);
	assert_int_equal(input_gunzip(packed, zlib.total_out, 10, &out, &size), -E2BIG);
	assert_int_equal(input_gunzip(packed, zlib.total_out, sizeof(zeros), &out, &size), 0);
	assert_int_equal(size, sizeof(zeros));
	free(out);
	/* Refused before it is read. */
	assert_int_equal(pprof_parse(zeros, PPROF_READ_MAX_BYTES + 1, &p), -E2BIG);
}

static size_t count_files(void)
{
	DIR *dir = opendir(folder);
	size_t count = 0;

	assert_non_null(dir);
	for (const struct dirent *entry; (entry = readdir(dir));)
		count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(dir);
	return count;
}

static void test_files(void **state)
{
	const struct output_format *format = output_find("pprof");
	struct profile *p CLEANUP(profile) = full_profile();
	struct profile *q CLEANUP(profile) = NULL;
	char path[128], longer[256], link[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/a.pb.gz", folder);
	assert_int_equal(pprof_read(path, &q), -ENOENT);
	/* Two times: the second replaces the first. */
	assert_int_equal(output_write_file(p, format, path), 0);
	assert_int_equal(output_write_file(p, format, path), 0);
	assert_int_equal(count_files(), 1);
	assert_int_equal(pprof_read(path, &q), 0);
	assert_same(p, q);
	/* The temporary name was taken, by a link that must not be followed. */
	snprintf(link, sizeof(link), "%s/.heaptap.tmp.%d", folder, (int)getpid());
	snprintf(longer, sizeof(longer), "%s/victim", folder);
	assert_int_equal(symlink(longer, link), 0);
	assert_int_equal(output_write_file(p, format, path), 0);
	assert_int_equal(count_files(), 1);
	/* A name as long as names can be: the temporary one is short. */
	snprintf(longer, sizeof(longer), "%s/%0200d.pb.gz", folder, 0);
	assert_int_equal(output_write_file(p, format, longer), 0);
	assert_int_equal(unlink(longer), 0);

	assert_int_equal(pprof_read(folder, &q), -EISDIR);
	assert_int_equal(output_write_file(p, format, folder), -EISDIR);
	snprintf(longer, sizeof(longer), "%s/no/such", folder);
	assert_int_equal(output_write_file(p, format, longer), -ENOENT);
	assert_int_equal(count_files(), 1);

	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	assert_int_equal(pprof_read(path, &q), -ENODATA);
	assert_int_equal(unlink(path), 0);
}

/* A file that cannot be written whole is not there at all; an older one stays. */
static void test_write_error(void **state)
{
	const struct output_format *format = output_find("pprof");
	struct profile *p CLEANUP(profile) = full_profile();
	struct profile *q CLEANUP(profile) = NULL;
	struct rlimit old, limit;
	char path[128];
	int err;

	snprintf(path, sizeof(path), "%s/b.pb.gz", folder);
	assert_int_equal(output_write_file(p, format, path), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 10;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	err = output_write_file(p, format, path);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(err, -EFBIG);
	assert_int_equal(count_files(), 1);
	assert_int_equal(pprof_read(path, &q), 0);
	assert_same(p, q);
	assert_int_equal(unlink(path), 0);
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_large_round_trip),
		cmocka_unit_test(test_foreign_form), cmocka_unit_test(test_invalid),
		cmocka_unit_test(test_ids),	     cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_flipped_bits), cmocka_unit_test(test_limits),
		cmocka_unit_test(test_files),	     cmocka_unit_test(test_write_error),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
