/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/prune.h"

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"

/* Bounds for expressions from files; see expression_is_tame(). */
#define EXPRESSION_MAX_LENGTH 4096
#define EXPRESSION_MAX_DEPTH  32
#define EXPRESSION_MAX_PLUS   8

struct prune_location {
	bool matched;
	size_t first_line; /* past the matched line nearest to the root; line_count: nothing stays
			    */
};

struct prune {
	const struct profile *profile;
	struct prune_location *locations; /* NULL: nothing is pruned */
};

struct expression {
	regex_t regex;
	bool valid;
};

static void expression_fini(struct expression *expression)
{
	if (expression->valid)
		regfree(&expression->regex);
}

/* The part of a name that starts at s and keeps its parentheses: its length, or 0. */
static size_t reserved_length(const char *s)
{
	static const char *const reserved[] = {"(anonymous namespace)", "operator()"};

	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (strncmp(s, reserved[i], strlen(reserved[i])) == 0)
			return strlen(reserved[i]);
	}
	return 0;
}

size_t prune_simplify(const char **name)
{
	const char *s;
	size_t skip;

	/* PowerPC's function descriptors. */
	if (**name == '.')
		(*name)++;
	for (s = *name; *s; s += skip ? skip : 1) {
		skip = reserved_length(s);
		if (!skip && *s == '(')
			break;
	}
	return s - *name;
}

/*
 * glibc's regcomp() copies what stands before a + or {n}, so nested ones grow without bound, and
 * regexec() with back references is exponential. None of it has a place in a list of functions.
 */
static bool expression_is_tame(const char *text)
{
	size_t depth = 0, plus = 0;

	if (strlen(text) > EXPRESSION_MAX_LENGTH)
		return false;
	for (const char *c = text; *c; c++) {
		switch (*c) {
		case '\\':
			c++;
			if (!*c || (*c >= '0' && *c <= '9'))
				return false;
			break;
		case '{':
			return false;
		case '+':
			if (++plus > EXPRESSION_MAX_PLUS)
				return false;
			break;
		case '(':
			if (++depth > EXPRESSION_MAX_DEPTH)
				return false;
			break;
		case ')':
			if (depth)
				depth--;
			break;
		}
	}
	return true;
}

/* Go's (?:...) is a plain group to POSIX. */
static void plain_groups(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		if (from[0] == '\\' && from[1]) {
			*to++ = *from++;
			*to++ = *from++;
		} else if (strncmp(from, "(?:", 3) == 0) {
			*to++ = '(';
			from += 3;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

static int expression_init(struct expression *expression, const char *text)
{
	char *anchored _cleanup_free_ = NULL;
	int err;

	if (!*text || !expression_is_tame(text))
		return 0;
	if (asprintf(&anchored, "^(%s)$", text) < 0) {
		anchored = NULL;
		return -ENOMEM;
	}
	plain_groups(anchored);
	err = regcomp(&expression->regex, anchored, REG_EXTENDED | REG_NOSUB);
	if (err == REG_ESPACE)
		return -ENOMEM;
	expression->valid = !err;
	return 0;
}

/* 1, 0, or -ENOMEM: regexec() builds its automaton as it goes (glibc's hides this error). */
static int expression_match(const struct expression *expression, const char *name)
{
	if (!expression->valid)
		return 0;
	switch (regexec(&expression->regex, name, 0, NULL, 0)) {
	case 0:
		return 1;
	case REG_ESPACE:
		return -ENOMEM;
	default:
		return 0;
	}
}

/* Is a function dropped and not kept? 1, 0, or -ENOMEM. */
static int match_function(const char *name, const struct expression *drop,
			  const struct expression *keep)
{
	size_t length = prune_simplify(&name);
	char *simple _cleanup_free_ = strndup(name, length);
	int dropped, kept;

	if (!simple)
		return -ENOMEM;
	dropped = expression_match(drop, simple);
	if (dropped <= 0)
		return dropped;
	kept = expression_match(keep, simple);
	return kept < 0 ? kept : !kept;
}

/* By function id - 1. NULL if memory ran out. */
static bool *match_functions(const struct profile *profile, const struct expression *drop,
			     const struct expression *keep)
{
	bool *matched _cleanup_free_ = calloc(profile->function_count + 1, sizeof(bool));
	int match;

	if (!matched)
		return NULL;
	for (size_t i = 0; i < profile->function_count; i++) {
		if (!profile->functions[i].name)
			continue;
		match = match_function(profile->strings[profile->functions[i].name], drop, keep);
		if (match < 0)
			return NULL;
		matched[i] = match;
	}
	return take_ptr(matched);
}

static void match_location(const struct profile_location *location, const bool *matched,
			   struct prune_location *ret)
{
	for (size_t i = location->line_count; i > 0; i--) {
		if (matched[location->lines[i - 1].function - 1]) {
			ret->matched = true;
			ret->first_line = i;
			return;
		}
	}
}

static int match_locations(struct prune *prune, const struct expression *drop,
			   const struct expression *keep)
{
	const struct profile *profile = prune->profile;
	bool *matched _cleanup_free_ = match_functions(profile, drop, keep);

	prune->locations = calloc(profile->location_count + 1, sizeof(prune->locations[0]));
	if (!matched || !prune->locations)
		return -ENOMEM;
	for (size_t i = 0; i < profile->location_count; i++)
		match_location(&profile->locations[i], matched, &prune->locations[i]);
	return 0;
}

int prune_new(const struct profile *profile, struct prune **ret)
{
	struct expression drop __attribute__((cleanup(expression_fini))) = {0};
	struct expression keep __attribute__((cleanup(expression_fini))) = {0};
	struct prune *prune CLEANUP(prune) = calloc(1, sizeof(*prune));
	int err;

	if (!prune)
		return -ENOMEM;
	prune->profile = profile;
	err = expression_init(&drop, profile->strings[profile->drop_frames]);
	if (!err)
		err = expression_init(&keep, profile->strings[profile->keep_frames]);
	/* A keep_frames that cannot be honoured would drop too much. */
	if (!err && drop.valid && (keep.valid || !profile->keep_frames))
		err = match_locations(prune, &drop, &keep);
	if (err)
		return err;
	*ret = take_ptr(prune);
	return 0;
}

void prune_free(struct prune *prune)
{
	if (!prune)
		return;
	free(prune->locations);
	free(prune);
}

size_t prune_first_location(const struct prune *prune, const struct profile_sample *sample)
{
	bool found_user = false;

	if (!prune->locations)
		return 0;
	for (size_t i = sample->location_count; i > 0; i--) {
		uint32_t id = sample->locations[i - 1];
		const struct prune_location *location = &prune->locations[id - 1];

		if (!location->matched)
			found_user = true;
		else if (found_user)
			return location->first_line == prune->profile->locations[id - 1].line_count
				       ? i
				       : i - 1;
	}
	return 0;
}

size_t prune_first_line(const struct prune *prune, uint32_t location)
{
	const struct prune_location *pruned;

	if (!prune->locations)
		return 0;
	pruned = &prune->locations[location - 1];
	/* A location that goes as a whole stays whole where it is not pruned. */
	return pruned->first_line == prune->profile->locations[location - 1].line_count
		       ? 0
		       : pruned->first_line;
}
