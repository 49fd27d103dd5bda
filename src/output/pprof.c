/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pprof's profile.proto, compressed with gzip:
 * https://github.com/google/pprof/blob/main/proto/profile.proto
 *
 * Every field is a key (field number << 3 | wire type) and a value: wire type 0 is a varint, 2 is a
 * length and that many bytes, which are a string, a message or packed varints. Fields that are 0
 * may be left out. Messages are built in a buffer, because their length comes first.
 */
#include "output/writers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "output/buffer.h"
#include "util/printable.h"

#define WIRE_VARINT 0
#define WIRE_BYTES  2

static void put_varint(struct buffer *b, uint64_t value)
{
	uint8_t bytes[10];
	size_t size = 0;

	while (value >= 0x80) {
		bytes[size++] = value | 0x80;
		value >>= 7;
	}
	bytes[size++] = value;
	buffer_put(b, bytes, size);
}

static void put_field(struct buffer *b, unsigned int field, uint64_t value)
{
	if (!value)
		return;
	put_varint(b, field << 3 | WIRE_VARINT);
	put_varint(b, value);
}

static void put_field_bytes(struct buffer *b, unsigned int field, const void *bytes, size_t size)
{
	put_varint(b, field << 3 | WIRE_BYTES);
	put_varint(b, size);
	buffer_put(b, bytes, size);
}

/* Moves a finished message into the one around it. */
static void put_message(struct buffer *b, unsigned int field, struct buffer *message)
{
	if (message->err)
		b->err = message->err;
	put_field_bytes(b, field, message->data, message->size);
	message->size = 0;
}

struct writer {
	FILE *file;
	z_stream zlib;
	struct buffer message; /* a field of Profile */
	struct buffer inner;   /* a field of that */
	struct buffer field;   /* message with its key and length */
	int err;
};

static int stream_open(struct writer *w)
{
	/* 15 bits of window, 16 more for a gzip header. */
	if (deflateInit2(&w->zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	return 0;
}

/* Takes all input that zlib was given. */
static void stream_pump(struct writer *w, int flush)
{
	uint8_t out[16384];
	size_t count;

	do {
		w->zlib.next_out = out;
		w->zlib.avail_out = sizeof(out);
		deflate(&w->zlib, flush);
		count = sizeof(out) - w->zlib.avail_out;
		errno = 0;
		if (fwrite(out, 1, count, w->file) != count) {
			w->err = errno ? -errno : -EIO;
			return;
		}
	} while (!w->zlib.avail_out);
}

static void stream_write(struct writer *w, uint8_t *data, size_t size)
{
	while (size && !w->err) {
		/* zlib counts in 32 bits. */
		size_t part = size < (1u << 30) ? size : 1u << 30;

		w->zlib.next_in = data;
		w->zlib.avail_in = part;
		stream_pump(w, Z_NO_FLUSH);
		data += part;
		size -= part;
	}
}

/* Sends w->message as a field of Profile. */
static void send_message(struct writer *w, unsigned int field)
{
	put_message(&w->field, field, &w->message);
	if (w->field.err)
		w->err = w->field.err;
	stream_write(w, w->field.data, w->field.size);
	w->field.size = 0;
}

static void write_value_type(struct writer *w, unsigned int field,
			     const struct profile_value_type *type)
{
	put_field(&w->message, 1, type->type);
	put_field(&w->message, 2, type->unit);
	send_message(w, field);
}

static void write_sample(struct writer *w, const struct profile_sample *sample, size_t value_count)
{
	if (sample->location_count) {
		for (size_t i = 0; i < sample->location_count; i++)
			put_varint(&w->inner, sample->locations[i]);
		put_message(&w->message, 1, &w->inner);
	}
	for (size_t i = 0; i < value_count; i++)
		put_varint(&w->inner, sample->values[i]);
	put_message(&w->message, 2, &w->inner);
	for (size_t i = 0; i < sample->label_count; i++) {
		const struct profile_label *label = &sample->labels[i];

		put_field(&w->inner, 1, label->key);
		put_field(&w->inner, 2, label->string);
		put_field(&w->inner, 3, label->number);
		put_field(&w->inner, 4, label->unit);
		put_message(&w->message, 3, &w->inner);
	}
	send_message(w, 2);
}

static void write_mapping(struct writer *w, const struct profile_mapping *mapping, uint64_t id)
{
	put_field(&w->message, 1, id);
	put_field(&w->message, 2, mapping->start);
	put_field(&w->message, 3, mapping->limit);
	put_field(&w->message, 4, mapping->offset);
	put_field(&w->message, 5, mapping->filename);
	put_field(&w->message, 6, mapping->build_id);
	put_field(&w->message, 7, mapping->has_functions);
	put_field(&w->message, 8, mapping->has_filenames);
	put_field(&w->message, 9, mapping->has_line_numbers);
	put_field(&w->message, 10, mapping->has_inline_frames);
	send_message(w, 3);
}

static void write_location(struct writer *w, const struct profile_location *location, uint64_t id)
{
	put_field(&w->message, 1, id);
	put_field(&w->message, 2, location->mapping);
	put_field(&w->message, 3, location->address);
	for (size_t i = 0; i < location->line_count; i++) {
		put_field(&w->inner, 1, location->lines[i].function);
		put_field(&w->inner, 2, location->lines[i].line);
		put_message(&w->message, 4, &w->inner);
	}
	send_message(w, 4);
}

static void write_function(struct writer *w, const struct profile_function *function, uint64_t id)
{
	put_field(&w->message, 1, id);
	put_field(&w->message, 2, function->name);
	put_field(&w->message, 3, function->system_name);
	put_field(&w->message, 4, function->filename);
	put_field(&w->message, 5, function->start_line);
	send_message(w, 5);
}

static void write_string(struct writer *w, const char *string)
{
	buffer_put(&w->message, string, strlen(string));
	/* Readers that keep to the format's letter refuse a whole file for one byte. */
	if (!w->message.err)
		utf8_repair((char *)w->message.data, w->message.size);
	send_message(w, 6);
}

/* The fields of Profile that are plain numbers. */
static void write_numbers(struct writer *w, const struct profile *profile)
{
	struct buffer *b = &w->field;

	put_field(b, 7, profile->drop_frames);
	put_field(b, 8, profile->keep_frames);
	put_field(b, 9, profile->time_nanos);
	put_field(b, 10, profile->duration_nanos);
	put_field(b, 12, profile->period);
	put_field(b, 14, profile->default_sample_type);
	for (size_t i = 0; i < profile->comment_count; i++)
		put_varint(&w->message, profile->comments[i]);
	if (profile->comment_count)
		send_message(w, 13);
	if (profile->period_type.type || profile->period_type.unit)
		write_value_type(w, 11, &profile->period_type);
	if (b->err)
		w->err = b->err;
	stream_write(w, b->data, b->size);
	b->size = 0;
}

static void write_profile(struct writer *w, const struct profile *profile)
{
	for (size_t i = 0; i < profile->sample_type_count; i++)
		write_value_type(w, 1, &profile->sample_types[i]);
	for (size_t i = 0; i < profile->sample_count; i++)
		write_sample(w, &profile->samples[i], profile->sample_type_count);
	for (size_t i = 0; i < profile->mapping_count; i++)
		write_mapping(w, &profile->mappings[i], i + 1);
	for (size_t i = 0; i < profile->location_count; i++)
		write_location(w, &profile->locations[i], i + 1);
	for (size_t i = 0; i < profile->function_count; i++)
		write_function(w, &profile->functions[i], i + 1);
	for (size_t i = 0; i < profile->string_count; i++)
		write_string(w, profile->strings[i]);
	write_numbers(w, profile);
	if (!w->err)
		stream_pump(w, Z_FINISH);
}

int pprof_write(const struct profile *profile, const struct output_options *options, FILE *file)
{
	struct writer w = {.file = file};

	if (profile->err)
		return profile->err;
	w.err = stream_open(&w);
	if (w.err)
		return w.err;
	write_profile(&w, profile);
	deflateEnd(&w.zlib);
	buffer_fini(&w.message);
	buffer_fini(&w.inner);
	buffer_fini(&w.field);
	return w.err;
}
