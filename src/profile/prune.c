/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/prune.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile/pattern.h"
#include "util/cleanup.h"

struct prune_location {
	bool matched;
	size_t first_line; /* past the match nearest to the root; line_count: none stays */
};

struct prune {
	const struct profile *profile;
	struct prune_location *locations; /* NULL: nothing is pruned */
};

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

/* Leaves *ret NULL if there is nothing that could be matched. */
static int anchored_pattern(const char *expression, struct pattern **ret)
{
	char *anchored _cleanup_free_ = NULL;
	int err;

	if (!*expression)
		return 0;
	if (asprintf(&anchored, "^(%s)$", expression) < 0) {
		anchored = NULL;
		return -ENOMEM;
	}
	err = pattern_new(anchored, ret);
	return err == -EINVAL ? 0 : err;
}

static bool match_function(const char *name, struct pattern *drop, struct pattern *keep)
{
	size_t length = prune_simplify(&name);

	return pattern_matches(drop, name, length) &&
	       !(keep && pattern_matches(keep, name, length));
}

/* By function id - 1. NULL if memory ran out. */
static bool *match_functions(const struct profile *profile, struct pattern *drop,
			     struct pattern *keep)
{
	bool *matched = calloc(profile->function_count + 1, sizeof(matched[0]));

	for (size_t i = 0; matched && i < profile->function_count; i++) {
		uint32_t name = profile->functions[i].name;

		matched[i] = name && match_function(profile->strings[name], drop, keep);
	}
	return matched;
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

static int match_locations(struct prune *prune, struct pattern *drop, struct pattern *keep)
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
	struct pattern *drop CLEANUP(pattern) = NULL;
	struct pattern *keep CLEANUP(pattern) = NULL;
	struct prune *prune CLEANUP(prune) = calloc(1, sizeof(*prune));
	int err;

	if (!prune)
		return -ENOMEM;
	prune->profile = profile;
	err = anchored_pattern(profile->strings[profile->drop_frames], &drop);
	if (!err)
		err = anchored_pattern(profile->strings[profile->keep_frames], &keep);
	/* A keep_frames that cannot be honoured would drop too much. */
	if (!err && drop && (keep || !profile->keep_frames))
		err = match_locations(prune, drop, keep);
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
