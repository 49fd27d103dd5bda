/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stacks FILE: what tests/e2e/pprof_stacks.py prints, where there is no python: a line per sample,
 * `BYTES FRAME;FRAME;...`, leaf first. A frame is FILE+0xOFFSET, 0xADDRESS without a file, or the
 * name of a location that is no code.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "profile/pprof_read.h"

static void print_frame(const struct profile *profile, uint32_t id)
{
	const struct profile_location *location = &profile->locations[id - 1];

	if (location->mapping) {
		const struct profile_mapping *mapping = &profile->mappings[location->mapping - 1];
		const char *path = profile->strings[mapping->filename];
		const char *slash = strrchr(path, '/');

		printf("%s+0x%" PRIx64, slash ? slash + 1 : path,
		       location->address - mapping->start + mapping->offset);
	} else if (location->address || !location->line_count) {
		printf("0x%" PRIx64, location->address);
	} else {
		const struct profile_function *function =
			&profile->functions[location->lines[0].function - 1];

		for (const char *c = profile->strings[function->name]; *c; c++)
			putchar(*c == ' ' ? '_' : *c);
	}
}

int main(int argc, char **argv)
{
	struct profile *profile CLEANUP(profile) = NULL;

	if (argc != 2 || pprof_read(argv[1], &profile)) {
		fprintf(stderr, "usage: stacks FILE, a profile\n");
		return 1;
	}
	for (size_t i = 0; i < profile->sample_count; i++) {
		const struct profile_sample *sample = &profile->samples[i];
		int64_t bytes = 0;

		for (size_t l = 0; l < sample->label_count; l++) {
			if (!strcmp(profile->strings[sample->labels[l].key], "bytes"))
				bytes = sample->labels[l].number;
		}
		printf("%" PRId64 " ", bytes);
		for (size_t l = 0; l < sample->location_count; l++) {
			if (l)
				putchar(';');
			print_frame(profile, sample->locations[l]);
		}
		putchar('\n');
	}
	return 0;
}
