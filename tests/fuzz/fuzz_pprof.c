/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The reader of profiles, and everything that works on what it accepts: the writers, and the
 * difference. What was written must be readable again.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "output/output.h"
#include "profile/diff.h"
#include "profile/pprof_read.h"
#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct profile *profile, const char *name, char **ret, size_t *ret_size)
{
	struct output_options options = {0};
	FILE *file = open_memstream(ret, ret_size);

	if (!file)
		abort();
	for (size_t i = 0; i < profile->sample_type_count && i < 4; i++) {
		options.sample_index = i;
		if (output_find(name)->write(profile, &options, file) < 0)
			abort();
		if (output_find(name)->write == output_find("pprof")->write)
			break;
	}
	fclose(file);
}

static void render_text(const struct profile *profile)
{
	char *text _cleanup_free_ = NULL, *folded _cleanup_free_ = NULL;
	size_t size;

	render(profile, "text", &text, &size);
	render(profile, "folded", &folded, &size);
}

static void check_round_trip(const struct profile *profile)
{
	struct profile *again CLEANUP(profile) = NULL;
	char *written _cleanup_free_ = NULL;
	size_t size = 0;

	render(profile, "pprof", &written, &size);
	if (!profile->sample_type_count)
		return;
	if (pprof_parse(written, size, &again) < 0)
		abort();
	if (again->sample_count != profile->sample_count ||
	    again->location_count != profile->location_count ||
	    again->function_count != profile->function_count)
		abort();
	if (profile_subtract(again, profile) < 0 || again->sample_count)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct profile *profile CLEANUP(profile) = NULL;

	if (pprof_parse(data, size, &profile) < 0)
		return 0;
	render_text(profile);
	check_round_trip(profile);
	if (profile_subtract(profile, NULL) < 0)
		abort();
	render_text(profile);
	return 0;
}
