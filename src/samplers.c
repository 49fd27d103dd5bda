/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "samplers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "heaptap/weight.h"
#include "probe/sampler_jemalloc.h"
#include "proc/maps.h"
#include "proc/process.h"
#include "session.h"
#include "target.h"
#include "util/log.h"

#define PARAMETER "TCMALLOC_SAMPLE_PARAMETER"

/* jemalloc's options may have a prefix, as its functions. */
static const char *const jemalloc_variables[] = {
	"MALLOC_CONF",
	"JE_MALLOC_CONF",
	"_RJEM_MALLOC_CONF",
};

/* What is cut off are options that few use. */
#define VARIABLE_MAX 1024

/* Of a process, or heaptap's own, which is that of a command that it starts; or NULL. */
static const char *variable_of(pid_t pid, const char *name, char value[VARIABLE_MAX])
{
	if (!pid)
		return getenv(name);
	return process_variable(pid, name, value, VARIABLE_MAX) ? NULL : value;
}

void sampler_survey_ask(struct sampler_survey *survey, pid_t pid)
{
	char value[VARIABLE_MAX];

	survey->interval = sampler_interval_parse(variable_of(pid, PARAMETER, value));
	survey->jemalloc_interval = 0;
	for (size_t i = 0; i < ARRAY_SIZE(jemalloc_variables); i++) {
		uint64_t interval =
			jemalloc_interval_parse(variable_of(pid, jemalloc_variables[i], value));

		if (interval)
			survey->jemalloc_interval = interval;
	}
}

int sampler_survey_image(struct sampler_survey *survey, struct image *image, bool markers_only)
{
	struct sampler_probes probes CLEANUP(sampler_probes) = {};
	int err = sampler_probes_find(image, survey->locator, markers_only, &probes);

	if (err)
		return err;
	survey->files++;
	survey->unreadable += probes.unreadable;
	if (probes.tells_allocs && !survey->tells)
		snprintf(survey->told_in, sizeof(survey->told_in), "%s", image_path(image));
	if (probes.has_countdown && !survey->has_countdown)
		snprintf(survey->counted_in, sizeof(survey->counted_in), "%s", image_path(image));
	if (probes.has_jemalloc && !survey->has_jemalloc)
		snprintf(survey->jemalloc_in, sizeof(survey->jemalloc_in), "%s", image_path(image));
	survey->has_jemalloc |= probes.has_jemalloc;
	survey->tells |= probes.tells_allocs;
	survey->has_countdown |= probes.has_countdown;
	survey->has_blocks |= probes.has_blocks;
	survey->frees_unknown |= !sampler_probes_know_frees(&probes, survey->interval);
	return 0;
}

/* Takes the descriptor over. What is no ELF file samples nothing. */
static int survey_file(struct sampler_survey *survey, int fd, const char *path, bool markers_only)
{
	struct image *image CLEANUP(image) = NULL;
	int err;

	if (fd < 0)
		return 0;
	err = image_open(fd, path, &image);
	if (err)
		return err == -ENOMEM ? err : 0;
	return sampler_survey_image(survey, image, markers_only);
}

/* A file's code is mostly one mapping; where it is more, they follow one another. */
static bool is_same_file(const struct mapping *a, const struct mapping *b)
{
	return a->inode == b->inode && a->dev_major == b->dev_major &&
	       a->dev_minor == b->dev_minor && !strcmp(a->path, b->path);
}

int sampler_survey_process(struct sampler_survey *survey, pid_t pid, bool markers_only)
{
	struct maps *maps CLEANUP(maps) = NULL;
	const struct mapping *last = NULL;
	int err = maps_read(pid, &maps);

	for (size_t i = 0; !err && i < maps->count; i++) {
		const struct mapping *mapping = &maps->entries[i];

		if (!mapping->executable || !mapping->inode ||
		    (last && is_same_file(last, mapping)))
			continue;
		last = mapping;
		err = survey_file(survey, maps_open_file(pid, mapping), mapping->path,
				  markers_only);
	}
	return err;
}

static int survey_command(struct sampler_survey *survey, char *const *paths, size_t count,
			  bool markers_only)
{
	int err = 0;

	for (size_t i = 0; i < count && !err; i++)
		err = survey_file(survey, open(paths[i], O_RDONLY | O_CLOEXEC), paths[i],
				  markers_only);
	return err;
}

/* Symbols cost a look: taken unasked only where the environment tells an allocator to sample. */
static bool is_markers_only(const struct sampler_survey *survey, bool explicitly)
{
	return !explicitly && !survey->interval && !survey->jemalloc_interval;
}

/* Of several processes, what any of them has; intervals are the first one's that has one. */
static int survey_target(struct sampler_survey *survey, const struct target *target,
			 bool explicitly)
{
	uint64_t interval = 0, jemalloc_interval = 0;
	size_t count;
	char *const *paths = target_command_files(target, &count);
	int err = 0;

	if (paths) {
		sampler_survey_ask(survey, 0);
		return survey_command(survey, paths, count, is_markers_only(survey, explicitly));
	}
	for (size_t i = 0; target_member(target, i); i++) {
		pid_t pid = target_member(target, i);

		sampler_survey_ask(survey, pid);
		if (!interval)
			interval = survey->interval;
		if (!jemalloc_interval)
			jemalloc_interval = survey->jemalloc_interval;
		err = sampler_survey_process(survey, pid, is_markers_only(survey, explicitly));
		if (err == -ENOMEM)
			return err;
	}
	survey->interval = interval;
	survey->jemalloc_interval = jemalloc_interval;
	return 0;
}

/* A mode that nobody asked for must lose nothing: neither frees nor other allocators' blocks. */
static bool is_as_good(const struct sampler_survey *survey)
{
	return !survey->frees_unknown && !survey->unreadable &&
	       (survey->tells || (survey->interval && survey->has_blocks) ||
		(survey->jemalloc_interval && survey->has_jemalloc));
}

/* The same files as the session's own locator looks into, for which it is too early. */
static int survey_by_options(struct sampler_survey *ret, const struct session_options *options,
			     const struct target *target, bool explicitly)
{
	struct locator *locator CLEANUP(locator) = NULL;
	const struct locate_options locate = {
		.debug_dirs = options->debug_dirs,
		.debug_dir_count = options->debug_dir_count,
		.root_fd = target_open_root(target),
	};
	int err = locator_new(&locate, &locator);

	if (!err) {
		ret->locator = locator;
		err = survey_target(ret, target, explicitly);
		ret->locator = NULL;
	}
	if (locate.root_fd >= 0)
		close(locate.root_fd);
	return err;
}

static void explain_jemalloc(const struct sampler_survey *survey, const char *how)
{
	if (survey->jemalloc_interval)
		log_info("Sampler: jemalloc's own, one sample per %" PRIu64
			 " bytes on average (MALLOC_CONF); nothing else traps%s",
			 survey->jemalloc_interval, how);
	else
		log_info("Sampler: jemalloc's own in %s, which no MALLOC_CONF turns on: started "
			 "with MALLOC_CONF=prof:true it samples; --mode heap needs none of it",
			 survey->jemalloc_in);
}

static void explain(const struct sampler_survey *survey, bool chosen)
{
	const char *how = chosen ? "; --mode heap counts every call of the allocator instead" : "";

	if (survey->tells)
		log_info("Sampler: %s tells of its samples (USDT probes otel_memory)%s",
			 survey->told_in, how);
	if (survey->has_jemalloc)
		explain_jemalloc(survey, how);
	if (!survey->has_countdown)
		return;
	if (survey->interval && survey->has_blocks)
		log_info("Sampler: tcmalloc's own, one sample per %" PRIu64
			 " bytes on average (" PARAMETER "); nothing else traps%s",
			 survey->interval, how);
	else if (survey->interval)
		log_info("Sampler: tcmalloc's own, one sample per %" PRIu64
			 " bytes on average (" PARAMETER "); in use is not known, as the frees of "
			 "samples cannot be found in %s",
			 survey->interval, survey->counted_in);
	else
		log_info(
			"Sampler: tcmalloc's countdown, one sample per 16 MB and thread; in use "
			"is not known. Started with " PARAMETER
			"=524288 there are more samples, and in use is known; --mode heap knows it "
			"in any case");
}

int samplers_choose(struct session_options *options, const struct target *target)
{
	bool explicitly = options->record == MODE_SAMPLER;
	struct sampler_survey survey = {};
	int err;

	if (!explicitly && (options->mode_given || options->rate_given || options->mappings ||
			    options->symbol_prefix || !target_is_single(target)))
		return 0;
	err = survey_by_options(&survey, options, target, explicitly);
	if (err)
		return log_error(err, "cannot look for allocators that sample");
	if (!explicitly && !is_as_good(&survey))
		return 0;
	options->record = MODE_SAMPLER;
	options->frees_unknown = (survey.tells || survey.has_countdown) && survey.frees_unknown;
	if (survey.has_countdown)
		options->sample_bytes = survey.interval ? survey.interval : SAMPLER_COUNTDOWN_BYTES;
	else if (survey.jemalloc_interval)
		options->sample_bytes = survey.jemalloc_interval;
	if (options->sample_bytes > SAMPLE_BYTES_MAX)
		options->sample_bytes = SAMPLE_BYTES_MAX;
	/* Without frees all would seem to be in use. */
	if (options->frees_unknown)
		options->inuse_interval = options->free_interval = 0;
	if (survey.unreadable)
		log_warning("%zu USDT probes otel_memory have arguments in a form that cannot be "
			    "read: what they tell is not counted",
			    survey.unreadable);
	explain(&survey, !explicitly);
	return 0;
}

int samplers_report_none(const char *words, size_t files)
{
	return log_error(0,
			 "nothing samples in %s: none of its %zu files has USDT probes otel_memory "
			 "or is gperftools' tcmalloc (libtcmalloc.so.4, not libtcmalloc_minimal) "
			 "or has jemalloc 5.3 with its profiler and symbols: use --mode "
			 "heap, or start it with LD_PRELOAD=libtcmalloc.so.4 " PARAMETER "=524288",
			 words, files);
}
