/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/coverage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const stop_texts[] = {
#define X(id, text) [STOP_##id] = text,
	STACK_STOPS(X)
#undef X
};

void coverage_measure(const struct heap *heap, uint32_t accounts, uint64_t sample_bytes,
		      struct coverage *ret)
{
	double variance = 0, alloc_variance = 0;

	*ret = (struct coverage){};
	for (const struct heap_site *site = heap_sites(heap); site; site = site->hh.next) {
		double bytes = ldexp((double)site->alloc.bytes, -WEIGHT_BYTES_SHIFT);

		if (!(accounts & 1u << site->key.account))
			continue;
		ret->alloc_bytes += bytes;
		ret->inuse_bytes +=
			bytes + ldexp((double)site->inherited.bytes - (double)site->freed.bytes,
				      -WEIGHT_BYTES_SHIFT);
		alloc_variance += (double)site->alloc.variance;
		variance += (double)site->alloc.variance + (double)site->inherited.variance -
			    (double)site->freed.variance;
		if (site->stack->lost)
			ret->lost_bytes += bytes;
		else
			ret->stop_bytes[site->stack->stop] += bytes;
		if (site->stack->guessed && site->stack->stop == STOP_END)
			ret->guessed_bytes += bytes;
	}
	ret->alloc_error = sample_bytes * sqrt(ldexp(alloc_variance, -WEIGHT_VARIANCE_SHIFT));
	ret->inuse_error =
		sample_bytes * sqrt(ldexp(variance > 0 ? variance : 0, -WEIGHT_VARIANCE_SHIFT));
}

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/* A reason without the place for an image's name: "no unwind rows" from "no unwind rows in %s". */
static void describe_stop(enum stack_stop stop, char *text, size_t size)
{
	const char *place = strstr(stop_texts[stop], " in %s");

	if (!place)
		place = strstr(stop_texts[stop], " for %s");
	snprintf(text, size, "%.*s", place ? (int)(place - stop_texts[stop]) : (int)size,
		 stop_texts[stop]);
}

void coverage_describe(const struct coverage *coverage, const char *type, char *text, size_t size)
{
	double whole = coverage->alloc_bytes;
	char reason[128];
	size_t used;

	snprintf(text, size, "%.2f %% of %s complete",
		 percent(coverage->stop_bytes[STOP_END], whole), type);
	if (coverage->guessed_bytes > 0) {
		used = strlen(text);
		snprintf(text + used, size - used,
			 " (%.2f %% by frame pointers through code without rows)",
			 percent(coverage->guessed_bytes, whole));
	}
	for (int stop = STOP_END + 1; stop < STOP_COUNT; stop++) {
		if (coverage->stop_bytes[stop] <= 0)
			continue;
		describe_stop(stop, reason, sizeof(reason));
		used = strlen(text);
		snprintf(text + used, size - used, ", %.2f %% cut: %s",
			 percent(coverage->stop_bytes[stop], whole), reason);
	}
	if (coverage->lost_bytes > 0) {
		used = strlen(text);
		snprintf(text + used, size - used, ", %.2f %% lost",
			 percent(coverage->lost_bytes, whole));
	}
}
