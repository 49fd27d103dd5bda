/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/nested_sets.h"

#include <errno.h>
#include <string.h>

#include "heaptap/probe.h"
#include "util/cleanup.h"

struct nested_set {
	uint32_t *offsets; /* sorted */
	size_t count;
};

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int nested_sets_number(struct nested_sets *sets, const uint32_t *offsets, size_t count,
		       uint8_t *ret)
{
	_cleanup_free_ uint32_t *sorted = calloc(count + 1, sizeof(*sorted));
	struct nested_set *entries;

	if (!sorted)
		return -ENOMEM;
	if (count)
		memcpy(sorted, offsets, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_value);
	for (size_t i = 0; i < sets->count; i++) {
		if (sets->entries[i].count == count &&
		    !memcmp(sets->entries[i].offsets, sorted, count * sizeof(*sorted))) {
			*ret = i;
			return 0;
		}
	}
	if (sets->count == PROBE_MAX_NESTED_SETS)
		return -E2BIG;
	entries = reallocarray(sets->entries, sets->count + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	sets->entries = entries;
	entries[sets->count] = (struct nested_set){take_ptr(sorted), count};
	*ret = sets->count++;
	return 0;
}

void nested_sets_fini(struct nested_sets *sets)
{
	for (size_t i = 0; i < sets->count; i++)
		free(sets->entries[i].offsets);
	free(sets->entries);
}
