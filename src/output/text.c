/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of functions, as `pprof -top` computes it. Flat is what a function allocated itself,
 * cum also what it called did; a function that stands in a stack several times counts once. Rows
 * whose cum is below half a percent are left out. Percentages refer to the sum of the absolute
 * values of all samples, which for a difference is not the sum of the rows.
 */
#include "output/writers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "output/number.h"
#include "output/shorten.h"
#include "profile/intern.h"
#include "profile/prune.h"
#include "util/cleanup.h"

/* pprof's defaults for -nodefraction and -edgefraction. */
#define ROW_FRACTION  0.005
#define CALL_FRACTION 0.001

/* Starts the key of a row for code without names, which has the path of its file for a name. */
#define NAMELESS '\1'

struct row {
	const char *key;
	int64_t flat;
	int64_t cum;
	size_t seen; /* number of the last sample that counted it, from 1 */
	bool kept;
	bool called_inline;
	bool called;
};

/* A call of one row's function by another's. */
struct call {
	int64_t value;
	size_t seen;
	bool is_inline;
};

struct table {
	const struct profile *profile;
	size_t sample_index;
	bool full_names;
	struct prune *prune;
	struct intern *names; /* keys of rows; numbers are indexes of rows */
	struct row *rows;
	size_t row_count;
	/* Rows of location i + 1, innermost line first: row_of[first[i]] up to row_of[first[i +
	 * 1]]. */
	size_t *first;
	uint32_t *row_of;
	struct intern *call_keys; /* pairs of rows; numbers are indexes of calls */
	struct call *calls;
	uint64_t total;
	int64_t net;
	size_t dropped;
	const char *unit;     /* of the profile's values */
	const char *out_unit; /* of the table */
};

static void table_fini(struct table *t)
{
	prune_free(t->prune);
	intern_free(t->names);
	intern_free(t->call_keys);
	free(t->rows);
	free(t->first);
	free(t->row_of);
	free(t->calls);
}

/* Sums wrap around, as in pprof: a foreign file may hold any values. */
static void add(int64_t *sum, int64_t value)
{
	*sum = (uint64_t)*sum + (uint64_t)value;
}

static uint64_t magnitude(int64_t value)
{
	return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

/* The number of the row for a line, or for a whole location if line is NULL. */
static int row_number(struct table *t, const struct profile_location *location,
		      const struct profile_line *line, uint32_t *ret)
{
	const struct profile *profile = t->profile;
	uint32_t name = line ? profile->functions[line->function - 1].name : 0;
	uint32_t filename =
		location->mapping ? profile->mappings[location->mapping - 1].filename : 0;
	char *key _cleanup_free_ = NULL;
	int is_new;

	if (name && !t->full_names) {
		const struct profile_function *function = &profile->functions[line->function - 1];

		key = malloc(strlen(profile->strings[name]) + 1);
		if (!key)
			return -ENOMEM;
		shorten_name(profile->strings[name], profile->strings[function->system_name], key);
		is_new = intern_add(t->names, key, strlen(key), ret);
	} else if (name) {
		is_new = intern_add(t->names, profile->strings[name],
				    strlen(profile->strings[name]), ret);
	} else if (asprintf(&key, "%c%s", NAMELESS, profile->strings[filename]) >= 0) {
		is_new = intern_add(t->names, key, strlen(key), ret);
	} else {
		key = NULL;
		is_new = -ENOMEM;
	}
	return is_new < 0 ? is_new : 0;
}

/* Gives every line of every location its row. */
static int find_rows(struct table *t)
{
	const struct profile *profile = t->profile;
	size_t count = 0;
	int err = 0;

	for (size_t i = 0; i < profile->location_count; i++)
		count += profile->locations[i].line_count + 1;
	t->first = calloc(profile->location_count + 1, sizeof(t->first[0]));
	t->row_of = calloc(count + 1, sizeof(t->row_of[0]));
	if (!t->first || !t->row_of)
		return -ENOMEM;
	count = 0;
	for (size_t i = 0; i < profile->location_count && !err; i++) {
		const struct profile_location *location = &profile->locations[i];

		if (!location->line_count)
			err = row_number(t, location, NULL, &t->row_of[count++]);
		for (size_t j = prune_first_line(t->prune, i + 1); j < location->line_count && !err;
		     j++)
			err = row_number(t, location, &location->lines[j], &t->row_of[count++]);
		t->first[i + 1] = count;
	}
	t->row_count = intern_count(t->names);
	t->rows = calloc(t->row_count + 1, sizeof(t->rows[0]));
	if (!t->rows)
		return -ENOMEM;
	for (size_t i = 0; i < t->row_count; i++)
		t->rows[i].key = intern_bytes(t->names, i, NULL);
	return err;
}

/* Adds up flat and cum of all rows. */
static void sum_rows(struct table *t)
{
	const struct profile *profile = t->profile;

	for (size_t i = 0; i < profile->sample_count; i++) {
		const struct profile_sample *sample = &profile->samples[i];
		size_t first = prune_first_location(t->prune, sample);
		int64_t value = sample->values[t->sample_index];

		t->total += magnitude(value);
		add(&t->net, value);
		for (size_t j = first; j < sample->location_count; j++) {
			uint32_t id = sample->locations[j];

			for (size_t k = t->first[id - 1]; k < t->first[id]; k++) {
				struct row *row = &t->rows[t->row_of[k]];

				if (j == first && k == t->first[id - 1])
					add(&row->flat, value);
				if (row->seen != i + 1)
					add(&row->cum, value);
				row->seen = i + 1;
			}
		}
	}
}

static int64_t sum_flat(const struct table *t)
{
	int64_t sum = 0;

	for (size_t i = 0; i < t->row_count; i++)
		add(&sum, t->rows[i].flat);
	return sum;
}

static void choose_rows(struct table *t)
{
	uint64_t cutoff = magnitude((int64_t)((double)sum_flat(t) * ROW_FRACTION));

	for (size_t i = 0; i < t->row_count; i++) {
		struct row *row = &t->rows[i];

		if (!row->flat && !row->cum)
			continue;
		row->kept = magnitude(row->cum) >= cutoff;
		t->dropped += !row->kept;
	}
}

/* The unit that suits the smallest row, or a hundred times it where the total has a larger one. */
static void choose_unit(struct table *t)
{
	uint64_t min = 0;

	for (size_t i = 0; i < t->row_count; i++) {
		const struct row *row = &t->rows[i];
		uint64_t value = magnitude(row->flat ? row->flat : row->cum);

		if (row->kept && value && (!min || value < min))
			min = value;
	}
	if (!min)
		min = t->total;
	t->out_unit = number_auto_unit(min, t->unit);
	if (min < t->total / 100 && strcmp(t->out_unit, number_auto_unit(t->total, t->unit)) != 0)
		t->out_unit = number_auto_unit(min * 100, t->unit);
}

static int add_call(struct table *t, size_t *capacity, const uint32_t key[2], size_t seen,
		    int64_t value, bool is_inline)
{
	size_t count = intern_count(t->call_keys);
	struct call *calls;
	uint32_t number;
	int is_new;

	if (count == *capacity) {
		calls = reallocarray(t->calls, count ? count * 2 : 64, sizeof(calls[0]));
		if (!calls)
			return -ENOMEM;
		t->calls = calls;
		*capacity = count ? count * 2 : 64;
	}
	is_new = intern_add(t->call_keys, key, 2 * sizeof(key[0]), &number);
	if (is_new < 0)
		return is_new;
	if (is_new)
		t->calls[number] = (struct call){.is_inline = true};
	if (t->calls[number].seen == seen)
		return 0;
	t->calls[number].seen = seen;
	t->calls[number].is_inline &= is_inline;
	add(&t->calls[number].value, value);
	return 0;
}

/* From the root of a stack to its leaf. */
static int add_calls(struct table *t, size_t *capacity, const struct profile_sample *sample,
		     size_t number)
{
	size_t first = prune_first_location(t->prune, sample);
	int64_t value = sample->values[t->sample_index];
	bool has_parent = false;
	uint32_t key[2];
	int err;

	for (size_t i = sample->location_count; i > first && value; i--) {
		uint32_t id = sample->locations[i - 1];

		for (size_t k = t->first[id]; k > t->first[id - 1]; k--) {
			key[1] = t->row_of[k - 1];
			/* As in pprof: rows that cancel out to nothing still call others. */
			if (t->dropped && !t->rows[key[1]].kept)
				continue;
			if (has_parent && key[0] != key[1]) {
				err = add_call(t, capacity, key, number, value, k != t->first[id]);
				if (err)
					return err;
			}
			key[0] = key[1];
			has_parent = true;
		}
	}
	return 0;
}

/* Which functions were inlined where they were called, or at some of the places. */
static int find_inlined(struct table *t)
{
	uint64_t cutoff = magnitude((int64_t)((double)sum_flat(t) * CALL_FRACTION));
	size_t capacity = 0, count;
	int err;

	for (size_t i = 0; i < t->profile->sample_count; i++) {
		err = add_calls(t, &capacity, &t->profile->samples[i], i + 1);
		if (err)
			return err;
	}
	count = intern_count(t->call_keys);
	for (size_t i = 0; i < count; i++) {
		const uint32_t *key = (const void *)intern_bytes(t->call_keys, i, NULL);
		uint32_t callee;

		memcpy(&callee, &key[1], sizeof(callee));
		if (magnitude(t->calls[i].value) < cutoff)
			continue;
		if (t->calls[i].is_inline)
			t->rows[callee].called_inline = true;
		else
			t->rows[callee].called = true;
	}
	return 0;
}

static bool has_inlined_calls(const struct profile *profile)
{
	for (size_t i = 0; i < profile->location_count; i++) {
		if (profile->locations[i].line_count > 1)
			return true;
	}
	return false;
}

static int row_compare(const void *a, const void *b)
{
	const struct row *l = a, *r = b;

	if (l->kept != r->kept)
		return r->kept - l->kept;
	if (magnitude(l->flat) != magnitude(r->flat))
		return magnitude(l->flat) < magnitude(r->flat) ? 1 : -1;
	if (magnitude(l->cum) != magnitude(r->cum))
		return magnitude(l->cum) < magnitude(r->cum) ? 1 : -1;
	return strcmp(l->key, r->key);
}

static void print_name(const struct row *row, FILE *file)
{
	bool nameless = row->key[0] == NAMELESS;
	const char *name = row->key + nameless, *slash;

	if (nameless) {
		slash = strrchr(name, '/');
		name = slash ? slash + 1 : name;
		if (!*name) {
			fputs("<unknown>", file);
			return;
		}
		fputc('[', file);
	}
	/* Names come from files: nothing in them may reach a terminal as a control sequence. */
	for (; *name; name++)
		fputc((unsigned char)*name < ' ' || *name == 0x7f ? '?' : *name, file);
	if (nameless)
		fputc(']', file);
}

static void print_row(const struct table *t, const struct row *row, int64_t sum, FILE *file)
{
	char flat[NUMBER_SIZE], cum[NUMBER_SIZE];
	char flat_percent[NUMBER_SIZE], sum_percent[NUMBER_SIZE], cum_percent[NUMBER_SIZE];

	number_format(flat, row->flat, t->unit, t->out_unit);
	number_format(cum, row->cum, t->unit, t->out_unit);
	number_format_percent(flat_percent, row->flat, t->total);
	number_format_percent(sum_percent, sum, t->total);
	number_format_percent(cum_percent, row->cum, t->total);
	fprintf(file, "%10s %s %s %10s %s  ", flat, flat_percent, sum_percent, cum, cum_percent);
	print_name(row, file);
	if (row->called_inline)
		fputs(row->called ? " (partial-inline)" : " (inline)", file);
	fputc('\n', file);
}

/* Kinds of memory that a line names; heaptap has three. */
#define MAX_KINDS 8

struct kind {
	const char *name;
	int64_t sum;
};

/* The kind of memory of a sample, by its label; NULL if it has none. */
static struct kind *find_kind(const struct profile *profile, const struct profile_sample *sample,
			      struct kind kinds[MAX_KINDS])
{
	const char *name = NULL;

	for (size_t i = 0; i < sample->label_count; i++)
		if (!strcmp(profile->strings[sample->labels[i].key], "memory"))
			name = profile->strings[sample->labels[i].string];
	/* Of a foreign file it may be anything. */
	if (!name || name[strspn(name, "abcdefghijklmnopqrstuvwxyz")])
		return NULL;
	for (size_t i = 0; *name && i < MAX_KINDS; i++) {
		if (!kinds[i].name)
			kinds[i].name = name;
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	}
	return NULL;
}

/* What each kind of memory has of the total, if samples say which they are about. */
static void print_kinds(const struct table *t, FILE *file)
{
	struct kind kinds[MAX_KINDS] = {0}, *kind;
	char sum[NUMBER_SIZE];

	for (size_t i = 0; i < t->profile->sample_count; i++) {
		const struct profile_sample *sample = &t->profile->samples[i];

		kind = find_kind(t->profile, sample, kinds);
		if (kind)
			add(&kind->sum, sample->values[t->sample_index]);
	}
	for (size_t i = 0; i < MAX_KINDS && kinds[i].name; i++) {
		number_format_total(sum, kinds[i].sum, t->unit);
		fprintf(file, "%s%.32s %s", i ? ", " : "Memory: ", kinds[i].name, sum);
	}
	if (kinds[0].name)
		fputc('\n', file);
}

static void print_head(const struct table *t, FILE *file)
{
	char total[NUMBER_SIZE], net[NUMBER_SIZE], cutoff[NUMBER_SIZE];

	number_format_total(total, t->total, t->unit);
	fprintf(file, "Total: %s", total);
	if (magnitude(t->net) != t->total || t->net < 0) {
		number_format_total(net, t->net, t->unit);
		fprintf(file, " (of changes; in sum %s)", net);
	}
	fputc('\n', file);
	print_kinds(t, file);
	if (t->dropped) {
		number_format(cutoff, (double)t->total * ROW_FRACTION, t->unit, t->out_unit);
		fprintf(file, "Dropped %zu node%s (cum <= %s)\n", t->dropped,
			t->dropped > 1 ? "s" : "", cutoff);
	}
	fprintf(file, "%10s %5s%% %5s%% %10s %5s%%\n", "flat", "flat", "sum", "cum", "cum");
}

static int table_init(struct table *t, const struct profile *profile,
		      const struct output_options *options)
{
	int err;

	t->profile = profile;
	t->sample_index = options->sample_index;
	t->full_names = options->full_names;
	t->unit = profile->strings[profile->sample_types[t->sample_index].unit];
	if (intern_new(&t->names) < 0 || intern_new(&t->call_keys) < 0)
		return -ENOMEM;
	err = prune_new(profile, &t->prune);
	if (!err)
		err = find_rows(t);
	if (err)
		return err;
	sum_rows(t);
	choose_rows(t);
	choose_unit(t);
	return has_inlined_calls(profile) ? find_inlined(t) : 0;
}

int text_write(const struct profile *profile, const struct output_options *options, FILE *file)
{
	struct table t __attribute__((cleanup(table_fini))) = {0};
	int64_t sum = 0;
	int err;

	if (profile->err)
		return profile->err;
	if (options->sample_index >= profile->sample_type_count)
		return -EINVAL;
	err = table_init(&t, profile, options);
	if (err)
		return err;
	qsort(t.rows, t.row_count, sizeof(t.rows[0]), row_compare);
	errno = 0;
	print_head(&t, file);
	for (size_t i = 0; i < t.row_count && t.rows[i].kept; i++) {
		add(&sum, t.rows[i].flat);
		print_row(&t, &t.rows[i], sum, file);
	}
	if (ferror(file))
		return errno ? -errno : -EIO;
	return 0;
}
