/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "output/number.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "util/cleanup.h"

struct unit {
	const char *name;
	const char *aliases[3]; /* lower case, without a final s where longer than two letters */
	double factor;
};

static const struct unit sizes[] = {
	{"B", {"b", "byte"}, 1},
	{"kB", {"kb", "kbyte", "kilobyte"}, 0x1p10},
	{"MB", {"mb", "mbyte", "megabyte"}, 0x1p20},
	{"GB", {"gb", "gbyte", "gigabyte"}, 0x1p30},
	{"TB", {"tb", "tbyte", "terabyte"}, 0x1p40},
	{"PB", {"pb", "pbyte", "petabyte"}, 0x1p50},
};

static const struct unit times[] = {
	{"ns", {"ns", "nanosecond"}, 1},    {"us", {"us", "microsecond"}, 1e3},
	{"ms", {"ms", "millisecond"}, 1e6}, {"s", {"s", "sec", "second"}, 1e9},
	{"hrs", {"hour", "hr"}, 3600e9},
};

struct scale {
	const struct unit *units;
	size_t count;
	const struct unit *fallback; /* for values below the smallest unit */
};

static const struct scale scales[] = {
	{sizes, ARRAY_SIZE(sizes), &sizes[0]},
	{times, ARRAY_SIZE(times), &times[3]},
};

static const struct unit *scale_find(const struct scale *scale, const char *name)
{
	size_t length = strlen(name);
	char folded[16];

	if (length >= sizeof(folded))
		return NULL;
	for (size_t i = 0; i <= length; i++)
		folded[i] = tolower((unsigned char)name[i]);
	if (length > 2 && folded[length - 1] == 's')
		folded[length - 1] = '\0';
	for (size_t i = 0; i < scale->count; i++) {
		for (size_t j = 0; j < ARRAY_SIZE(scale->units[i].aliases); j++) {
			const char *alias = scale->units[i].aliases[j];

			if (alias && strcmp(alias, folded) == 0)
				return &scale->units[i];
		}
	}
	return NULL;
}

/* The scale that a unit belongs to, or NULL. */
static const struct scale *scale_of(const char *unit, const struct unit **ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(scales); i++) {
		*ret = scale_find(&scales[i], unit);
		if (*ret)
			return &scales[i];
	}
	return NULL;
}

const char *number_auto_unit(uint64_t value, const char *unit)
{
	const struct unit *from, *best = NULL;
	const struct scale *scale = scale_of(unit, &from);

	if (!scale)
		return unit;
	for (size_t i = 0; i < scale->count; i++) {
		if ((double)value * from->factor / scale->units[i].factor >= 1.0)
			best = &scale->units[i];
	}
	return best ? best->name : scale->fallback->name;
}

/* Units that are not worth a word. */
static bool is_plain(const char *unit)
{
	static const char *const plain[] = {"count", "sample", "unit", "minimum", "auto"};

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		if (strcmp(plain[i], unit) == 0)
			return true;
	}
	return false;
}

void number_format(char text[NUMBER_SIZE], int64_t value, const char *unit, const char *to_unit)
{
	const struct unit *from, *to;
	const struct scale *scale = scale_of(unit, &from);
	const char *name = is_plain(to_unit) ? "" : to_unit;
	double scaled = value;
	size_t length;

	if (scale) {
		to = scale_find(scale, to_unit);
		if (!to)
			to = scale->fallback;
		scaled = scaled * from->factor / to->factor;
		name = to->name;
	}
	length = snprintf(text, NUMBER_SIZE, "%.2f", scaled);
	if (length > 3 && strcmp(text + length - 3, ".00") == 0)
		text[length - 3] = '\0';
	if (strcmp(text, "0") == 0 || strcmp(text, "-0") == 0)
		strcpy(text, "0");
	else
		snprintf(text + strlen(text), NUMBER_SIZE - strlen(text), "%.16s", name);
}

void number_format_total(char text[NUMBER_SIZE], int64_t value, const char *unit)
{
	const struct unit *from = scale_find(&scales[0], unit);
	double bytes;
	size_t i = 0;

	if (!from) {
		number_format(
			text, value, unit,
			number_auto_unit(value < 0 ? -(uint64_t)value : (uint64_t)value, unit));
		return;
	}
	bytes = value * from->factor;
	while (i + 1 < ARRAY_SIZE(sizes) && fabs(bytes / sizes[i].factor) >= 10000)
		i++;
	snprintf(text, NUMBER_SIZE, i ? "%.1f %s" : "%.0f %s", bytes / sizes[i].factor,
		 sizes[i].name);
}

void number_format_percent(char text[NUMBER_SIZE], int64_t value, uint64_t total)
{
	double percent = total ? fabs((double)value / (double)total) * 100 : 0;

	if (percent >= 99.95 && percent <= 100.05)
		strcpy(text, "  100%");
	else if (percent >= 1)
		snprintf(text, NUMBER_SIZE, "%5.2f%%", percent);
	else
		snprintf(text, NUMBER_SIZE, "%5.2g%%", percent);
}
