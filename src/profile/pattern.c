/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "profile/pattern.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Characters of an expression; heaptap's own has some 400. */
#define MAX_EXPRESSION 65536
/* Steps of one search, some milliseconds; kB of memory; searches given up before the pattern is. */
#define MAX_STEPS     200000
#define MAX_MEMORY_KB 20000
#define MAX_GIVEN_UP  16

struct pattern {
	pcre2_code *code;
	pcre2_match_data *data;
	pcre2_match_context *limits;
	unsigned int given_up;
};

int pattern_new(const char *expression, struct pattern **ret)
{
	struct pattern *pattern CLEANUP(pattern) = calloc(1, sizeof(*pattern));
	size_t length = strlen(expression), where;
	int code;

	if (!pattern)
		return -ENOMEM;
	if (length > MAX_EXPRESSION)
		return -EINVAL;
	/* As in Go, $ is the end of the text alone, and text is bytes. */
	pattern->code =
		pcre2_compile((PCRE2_SPTR)expression, length,
			      PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code, &where, NULL);
	if (!pattern->code)
		return code == PCRE2_ERROR_HEAP_FAILED ? -ENOMEM : -EINVAL;
	pattern->data = pcre2_match_data_create(1, NULL);
	pattern->limits = pcre2_match_context_create(NULL);
	if (!pattern->data || !pattern->limits)
		return -ENOMEM;
	pcre2_set_match_limit(pattern->limits, MAX_STEPS);
	pcre2_set_depth_limit(pattern->limits, MAX_STEPS);
	pcre2_set_heap_limit(pattern->limits, MAX_MEMORY_KB);
	*ret = take_ptr(pattern);
	return 0;
}

void pattern_free(struct pattern *pattern)
{
	if (!pattern)
		return;
	pcre2_code_free(pattern->code);
	pcre2_match_data_free(pattern->data);
	pcre2_match_context_free(pattern->limits);
	free(pattern);
}

bool pattern_matches(struct pattern *pattern, const char *text, size_t length)
{
	int result;

	if (pattern->given_up >= MAX_GIVEN_UP)
		return false;
	result = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, 0, 0, pattern->data,
			     pattern->limits);
	/* 0: a match with more groups than the match data has room for. */
	if (result >= 0)
		return true;
	if (result != PCRE2_ERROR_NOMATCH)
		pattern->given_up++;
	return false;
}
