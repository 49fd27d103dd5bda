/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Allocators that sample by themselves: whether a target has one, and the probes on it. Part of the
 * session: prints its errors.
 */
#ifndef HEAPTAP_SAMPLERS_H
#define HEAPTAP_SAMPLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "elf/image.h"
#include "probe/samplers.h"

struct session_options;
struct target;

/* What samples in the files of a process. Begins as zeroes. */
struct sampler_survey {
	/* What the environment says, see sampler_survey_ask(): TCMALLOC_SAMPLE_PARAMETER, and
	 * jemalloc's MALLOC_CONF; 0: not told to sample.
	 */
	uint64_t interval;
	uint64_t jemalloc_interval;
	/* As in sampler_probes_find(); not owned, set by the caller. */
	struct locator *locator;
	size_t files;
	bool tells;	    /* otel_memory probes */
	bool has_countdown; /* gperftools' tcmalloc */
	bool has_blocks;    /* and what shows the blocks and frees of its samples */
	bool has_jemalloc;  /* with its profiler */
	bool frees_unknown; /* of something that was found, no frees can be seen */
	size_t unreadable;  /* probes whose arguments cannot be read */
	char told_in[256];  /* files, cut if longer */
	char counted_in[256];
	char jemalloc_in[256];
};

/* Reads how the environment of a process, of heaptap itself if pid is 0, tells allocators to
 * sample. */
void sampler_survey_ask(struct sampler_survey *survey, pid_t pid);

/*
 * markers_only as in sampler_probes_find(). These print nothing; errors: -ENOMEM, those of
 * maps_read().
 */
int sampler_survey_image(struct sampler_survey *survey, struct image *image, bool markers_only);
int sampler_survey_process(struct sampler_survey *survey, pid_t pid, bool markers_only);

/*
 * Decides whether a session is to take the samples of the target's allocator: if that was asked
 * for, or if nothing was and they are as good as heaptap's own. Then options say so: the mode, the
 * distance between samples, and whether frees can be seen; and it says why.
 */
int samplers_choose(struct session_options *options, const struct target *target);

/* Prints that nothing samples in the target, and what to do; returns a negative errno. */
int samplers_report_none(const char *words, size_t files);

#endif
