/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Folded stacks: "root;caller;leaf VALUE", one line per different stack, sorted. The form of
 * Brendan Gregg's flame graph tools.
 */
#include "output/writers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "output/buffer.h"
#include "output/shorten.h"
#include "profile/intern.h"
#include "profile/prune.h"
#include "util/cleanup.h"

struct stack_line {
	const char *frames;
	int64_t value;
};

struct folded {
	const struct profile *profile;
	bool full_names;
	struct prune *prune;
	struct intern *frames;	  /* the frames of a location, by location id - 1 */
	uint32_t *frames_of;	  /* location id - 1 -> number in frames */
	struct intern *stacks;	  /* whole lines without their value */
	struct stack_line *lines; /* by number in stacks */
	struct buffer buffer;
};

static void folded_fini(struct folded *f)
{
	prune_free(f->prune);
	intern_free(f->frames);
	intern_free(f->stacks);
	free(f->frames_of);
	free(f->lines);
	buffer_fini(&f->buffer);
}

/* A semicolon ends a frame and a line break the stack. */
static void put_name(struct buffer *b, const char *name)
{
	for (const char *c = name; *c; c++) {
		char safe = *c == ';' ? ':' : (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;

		buffer_put(b, &safe, 1);
	}
}

/* A place without a name: its file and the offset in it, else its address. */
static void put_place(struct folded *f, const struct profile_location *location)
{
	const struct profile_mapping *mapping =
		location->mapping ? &f->profile->mappings[location->mapping - 1] : NULL;
	uint64_t number = location->address;
	const char *path, *slash;
	char text[32];

	if (mapping && mapping->filename) {
		path = f->profile->strings[mapping->filename];
		slash = strrchr(path, '/');
		put_name(&f->buffer, slash ? slash + 1 : path);
		buffer_put(&f->buffer, "+", 1);
		number += mapping->offset - mapping->start;
	}
	snprintf(text, sizeof(text), "0x%" PRIx64, number);
	buffer_put(&f->buffer, text, strlen(text));
}

static void put_frame(struct folded *f, const struct profile_location *location,
		      const struct profile_line *line)
{
	const struct profile_function *function = &f->profile->functions[line->function - 1];
	const char *name = f->profile->strings[function->name];
	_cleanup_free_ char *shorter = NULL;

	if (!function->name) {
		put_place(f, location);
		return;
	}
	if (!f->full_names) {
		shorter = malloc(strlen(name) + 1);
		if (!shorter)
			f->buffer.err = -ENOMEM;
		else
			shorten_name(name, f->profile->strings[function->system_name], shorter);
	}
	put_name(&f->buffer, shorter ? shorter : name);
}

/* Interns the buffer's contents and empties it. */
static int buffer_intern(struct buffer *b, struct intern *intern, uint32_t *ret)
{
	size_t size = b->size;

	b->size = 0;
	return b->err ? b->err
		      : intern_add(intern, b->data ? (const void *)b->data : "", size, ret);
}

static int fold_location(struct folded *f, uint32_t id)
{
	const struct profile_location *location = &f->profile->locations[id - 1];
	size_t first = prune_first_line(f->prune, id);
	int is_new;

	if (!location->line_count)
		put_place(f, location);
	for (size_t i = location->line_count; i > first; i--) {
		put_frame(f, location, &location->lines[i - 1]);
		if (i - 1 > first)
			buffer_put(&f->buffer, ";", 1);
	}
	is_new = buffer_intern(&f->buffer, f->frames, &f->frames_of[id - 1]);
	return is_new < 0 ? is_new : 0;
}

static int fold_sample(struct folded *f, const struct profile_sample *sample, int64_t value)
{
	size_t first = prune_first_location(f->prune, sample);
	uint32_t number;
	int is_new;

	for (size_t i = sample->location_count; i > first; i--) {
		size_t size;
		const char *frames =
			intern_bytes(f->frames, f->frames_of[sample->locations[i - 1] - 1], &size);

		buffer_put(&f->buffer, frames, size);
		if (i - 1 > first)
			buffer_put(&f->buffer, ";", 1);
	}
	if (!sample->location_count)
		buffer_put(&f->buffer, "<unknown>", strlen("<unknown>"));
	is_new = buffer_intern(&f->buffer, f->stacks, &number);
	if (is_new < 0)
		return is_new;
	/* There are not more lines than samples. Sums wrap around, as in pprof. */
	f->lines[number].value = (uint64_t)f->lines[number].value + (uint64_t)value;
	return 0;
}

static int line_compare(const void *a, const void *b)
{
	return strcmp(((const struct stack_line *)a)->frames,
		      ((const struct stack_line *)b)->frames);
}

static int fold(struct folded *f, size_t sample_index)
{
	const struct profile *profile = f->profile;
	int err = 0;

	f->frames_of = calloc(profile->location_count + 1, sizeof(f->frames_of[0]));
	f->lines = calloc(profile->sample_count + 1, sizeof(f->lines[0]));
	if (!f->frames_of || !f->lines || intern_new(&f->frames) < 0 || intern_new(&f->stacks) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < profile->location_count && !err; i++)
		err = fold_location(f, i + 1);
	for (size_t i = 0; i < profile->sample_count && !err; i++) {
		const struct profile_sample *sample = &profile->samples[i];

		if (sample->values[sample_index])
			err = fold_sample(f, sample, sample->values[sample_index]);
	}
	return err;
}

int folded_write(const struct profile *profile, const struct output_options *options, FILE *file)
{
	struct folded f __attribute__((cleanup(folded_fini))) = {.profile = profile,
								 .full_names = options->full_names};
	size_t count;
	int err;

	if (profile->err)
		return profile->err;
	if (options->sample_index >= profile->sample_type_count)
		return -EINVAL;
	err = prune_new(profile, &f.prune);
	if (!err)
		err = fold(&f, options->sample_index);
	if (err)
		return err;
	count = intern_count(f.stacks);
	for (size_t i = 0; i < count; i++)
		f.lines[i].frames = intern_bytes(f.stacks, i, NULL);
	qsort(f.lines, count, sizeof(f.lines[0]), line_compare);
	for (size_t i = 0; i < count; i++) {
		if (f.lines[i].value &&
		    fprintf(file, "%s %" PRId64 "\n", f.lines[i].frames, f.lines[i].value) < 0)
			return errno ? -errno : -EIO;
	}
	return 0;
}
