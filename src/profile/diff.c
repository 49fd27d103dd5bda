/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "profile/intern.h"
#include "util/cleanup.h"

/* Sizes of mappings differ a little between tools; pprof compares them in pages, too. */
#define MAPPING_SIZE_ROUNDING 0x1000ull

/* Array of numbers by which equal things are found. */
struct key {
	uint64_t *items;
	size_t count;
	size_t capacity;
	int err;
};

/* Profiles are added to `out` one after the other. An intern's number is an index in `out`. */
struct merge {
	struct profile *out;
	struct intern *mappings;
	struct intern *locations;
	struct intern *samples;
	struct key key;
};

/* From ids of one source to ids of `out`, by index. */
struct translation {
	uint32_t *strings;
	uint32_t *mappings;
	uint32_t *functions;
	uint32_t *locations;
};

static void merge_fini(struct merge *merge)
{
	profile_free(merge->out);
	intern_free(merge->mappings);
	intern_free(merge->locations);
	intern_free(merge->samples);
	free(merge->key.items);
}

static void translation_fini(struct translation *t)
{
	free(t->strings);
	free(t->mappings);
	free(t->functions);
	free(t->locations);
}

static void key_add(struct key *key, uint64_t item)
{
	size_t capacity = key->capacity ? key->capacity * 2 : 64;
	uint64_t *items;

	if (key->count == key->capacity) {
		items = reallocarray(key->items, capacity, sizeof(items[0]));
		if (!items) {
			key->err = -ENOMEM;
			return;
		}
		key->items = items;
		key->capacity = capacity;
	}
	key->items[key->count++] = item;
}

/* As intern_add(); empties the key. */
static int key_intern(struct key *key, struct intern *intern, uint32_t *ret)
{
	size_t size = key->count * sizeof(key->items[0]);

	key->count = 0;
	return key->err ? key->err : intern_add(intern, key->items, size, ret);
}

static int add_mapping(struct merge *merge, struct profile_mapping mapping,
		       const struct translation *t, uint32_t *ret)
{
	uint64_t size = mapping.limit - mapping.start;
	uint32_t number;
	int is_new;

	mapping.filename = t->strings[mapping.filename];
	mapping.build_id = t->strings[mapping.build_id];
	key_add(&merge->key, (size + MAPPING_SIZE_ROUNDING - 1) / MAPPING_SIZE_ROUNDING);
	key_add(&merge->key, mapping.offset);
	key_add(&merge->key, mapping.build_id ? mapping.build_id : mapping.filename);
	is_new = key_intern(&merge->key, merge->mappings, &number);
	if (is_new < 0)
		return is_new;
	if (is_new)
		profile_add_mapping(merge->out, &mapping);
	*ret = number + 1;
	return merge->out->err;
}

static int add_location(struct merge *merge, const struct profile *from,
			const struct profile_location *location, const struct translation *t,
			uint32_t *ret)
{
	struct profile_line *lines _cleanup_free_ =
		calloc(location->line_count + 1, sizeof(lines[0]));
	uint32_t mapping = location->mapping ? t->mappings[location->mapping - 1] : 0;
	uint64_t start = mapping ? from->mappings[location->mapping - 1].start : 0;
	uint64_t out_start = mapping ? merge->out->mappings[mapping - 1].start : 0;
	uint32_t number;
	int is_new;

	if (!lines)
		return -ENOMEM;
	key_add(&merge->key, mapping);
	key_add(&merge->key, location->address - start);
	for (size_t i = 0; i < location->line_count; i++) {
		lines[i].function = t->functions[location->lines[i].function - 1];
		lines[i].line = location->lines[i].line;
		key_add(&merge->key, lines[i].function);
		key_add(&merge->key, lines[i].line);
	}
	is_new = key_intern(&merge->key, merge->locations, &number);
	if (is_new < 0)
		return is_new;
	if (is_new)
		profile_add_location(merge->out, mapping, location->address - start + out_start,
				     lines, location->line_count);
	*ret = number + 1;
	return merge->out->err;
}

static int label_compare(const void *a, const void *b)
{
	const struct profile_label *l = a, *r = b;

	if (l->key != r->key)
		return l->key < r->key ? -1 : 1;
	if (l->string != r->string)
		return l->string < r->string ? -1 : 1;
	if (l->number != r->number)
		return l->number < r->number ? -1 : 1;
	return (l->unit > r->unit) - (l->unit < r->unit);
}

/* In out's strings, and in an order that does not depend on the source's. */
static struct profile_label *translate_labels(const struct profile_sample *sample,
					      const struct translation *t)
{
	struct profile_label *labels = calloc(sample->label_count + 1, sizeof(labels[0]));

	if (!labels)
		return NULL;
	for (size_t i = 0; i < sample->label_count; i++) {
		labels[i] = sample->labels[i];
		labels[i].key = t->strings[labels[i].key];
		labels[i].string = t->strings[labels[i].string];
		labels[i].unit = t->strings[labels[i].unit];
	}
	qsort(labels, sample->label_count, sizeof(labels[0]), label_compare);
	return labels;
}

/* Sums wrap around, as in pprof: a foreign file may hold any values. */
static void add_values(int64_t *to, const int64_t *values, size_t count, int sign)
{
	for (size_t i = 0; i < count; i++)
		to[i] = (uint64_t)to[i] + (uint64_t)values[i] * (uint64_t)sign;
}

static int add_sample(struct merge *merge, const struct profile_sample *sample,
		      const struct translation *t, int sign)
{
	struct profile_label *labels _cleanup_free_ = translate_labels(sample, t);
	uint32_t *locations _cleanup_free_ =
		calloc(sample->location_count + 1, sizeof(locations[0]));
	size_t value_count = merge->out->sample_type_count;
	int64_t *zeros _cleanup_free_ = calloc(value_count + 1, sizeof(zeros[0]));
	uint32_t number;
	int is_new;

	if (!labels || !locations || !zeros)
		return -ENOMEM;
	key_add(&merge->key, sample->location_count);
	for (size_t i = 0; i < sample->location_count; i++) {
		locations[i] = t->locations[sample->locations[i] - 1];
		key_add(&merge->key, locations[i]);
	}
	for (size_t i = 0; i < sample->label_count; i++) {
		key_add(&merge->key, labels[i].key);
		key_add(&merge->key, labels[i].string);
		key_add(&merge->key, labels[i].number);
		key_add(&merge->key, labels[i].unit);
	}
	is_new = key_intern(&merge->key, merge->samples, &number);
	if (is_new < 0)
		return is_new;
	if (is_new)
		profile_add_sample(merge->out, locations, sample->location_count, zeros, labels,
				   sample->label_count);
	if (merge->out->err)
		return merge->out->err;
	add_values(merge->out->samples[number].values, sample->values, value_count, sign);
	return 0;
}

static int translation_init(struct translation *t, const struct profile *from)
{
	t->strings = calloc(from->string_count, sizeof(t->strings[0]));
	t->mappings = calloc(from->mapping_count + 1, sizeof(t->mappings[0]));
	t->functions = calloc(from->function_count + 1, sizeof(t->functions[0]));
	t->locations = calloc(from->location_count + 1, sizeof(t->locations[0]));
	if (!t->strings || !t->mappings || !t->functions || !t->locations)
		return -ENOMEM;
	return 0;
}

static uint32_t add_function(struct profile *out, struct profile_function function,
			     const struct translation *t)
{
	function.name = t->strings[function.name];
	function.system_name = t->strings[function.system_name];
	function.filename = t->strings[function.filename];
	return profile_add_function(out, &function);
}

static int add_profile(struct merge *merge, const struct profile *from, int sign)
{
	struct translation t __attribute__((cleanup(translation_fini))) = {0};
	struct profile *out = merge->out;
	int err;

	err = translation_init(&t, from);
	for (size_t i = 0; i < from->string_count && !err; i++) {
		t.strings[i] = profile_string(out, from->strings[i]);
		err = out->err;
	}
	for (size_t i = 0; i < from->mapping_count && !err; i++)
		err = add_mapping(merge, from->mappings[i], &t, &t.mappings[i]);
	for (size_t i = 0; i < from->function_count && !err; i++) {
		t.functions[i] = add_function(out, from->functions[i], &t);
		err = out->err;
	}
	for (size_t i = 0; i < from->location_count && !err; i++)
		err = add_location(merge, from, &from->locations[i], &t, &t.locations[i]);
	for (size_t i = 0; i < from->sample_count && !err; i++)
		err = add_sample(merge, &from->samples[i], &t, sign);
	return err;
}

static void copy_header(struct profile *out, const struct profile *p)
{
	for (size_t i = 0; i < p->sample_type_count; i++)
		profile_add_sample_type(out, p->strings[p->sample_types[i].type],
					p->strings[p->sample_types[i].unit]);
	for (size_t i = 0; i < p->comment_count; i++)
		profile_add_comment(out, p->strings[p->comments[i]]);
	out->period_type.type = profile_string(out, p->strings[p->period_type.type]);
	out->period_type.unit = profile_string(out, p->strings[p->period_type.unit]);
	out->period = p->period;
	out->time_nanos = p->time_nanos;
	out->duration_nanos = p->duration_nanos;
	out->drop_frames = profile_string(out, p->strings[p->drop_frames]);
	out->keep_frames = profile_string(out, p->strings[p->keep_frames]);
	out->default_sample_type = profile_string(out, p->strings[p->default_sample_type]);
}

static bool same_sample_types(const struct profile *p, const struct profile *q)
{
	if (p->sample_type_count != q->sample_type_count)
		return false;
	for (size_t i = 0; i < p->sample_type_count; i++) {
		const struct profile_value_type *a = &p->sample_types[i], *b = &q->sample_types[i];

		if (strcmp(p->strings[a->type], q->strings[b->type]) != 0 ||
		    strcmp(p->strings[a->unit], q->strings[b->unit]) != 0)
			return false;
	}
	return true;
}

static bool sample_is_zero(const struct profile_sample *sample, size_t value_count)
{
	for (size_t i = 0; i < value_count; i++) {
		if (sample->values[i])
			return false;
	}
	return true;
}

static void remove_zero_samples(struct profile *profile)
{
	size_t kept = 0;

	for (size_t i = 0; i < profile->sample_count; i++) {
		const struct profile_sample *sample = &profile->samples[i];

		if (!sample_is_zero(sample, profile->sample_type_count))
			profile->samples[kept++] = *sample;
	}
	profile->sample_count = kept;
}

int profile_subtract(struct profile *p, const struct profile *base)
{
	struct merge merge __attribute__((cleanup(merge_fini))) = {0};
	struct profile swap;
	int err;

	if (base && !same_sample_types(p, base))
		return -EINVAL;
	if (profile_new(&merge.out) < 0 || intern_new(&merge.mappings) < 0 ||
	    intern_new(&merge.locations) < 0 || intern_new(&merge.samples) < 0)
		return -ENOMEM;
	copy_header(merge.out, p);
	err = add_profile(&merge, p, 1);
	if (!err && base)
		err = add_profile(&merge, base, -1);
	if (err)
		return err;
	remove_zero_samples(merge.out);
	swap = *p;
	*p = *merge.out;
	*merge.out = swap;
	return 0;
}
