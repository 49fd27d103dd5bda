/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "record_mode.h"

#include <errno.h>

#include "util/cleanup.h"
#include "util/log.h"

#define DEFAULT_INUSE_INTERVAL (100ull << 20)
/* No sample of page faults is of less. */
#define SMALLEST_FAULT 4096

/* What looks at no allocator is called so; NULL if it does. */
static const char *unprobed_name(const struct session_options *options,
				 const struct session_options *environment)
{
	if (options->mappings == MAPPINGS_ONLY)
		return environment->mappings == MAPPINGS_ONLY ? "HEAP_PROFILE_ONLY_MMAP"
							      : "--mmap-only";
	if (options->record == MODE_GROWTH)
		return "--mode growth";
	return options->record == MODE_FAULTS ? "--mode faults" : NULL;
}

struct useless_option {
	bool given;
	const char *option;
};

static int refuse(const struct useless_option *options, size_t count, const char *about,
		  const char *mode)
{
	for (size_t i = 0; i < count; i++) {
		if (!options[i].given)
			continue;
		log_error(0, "%s is about %s, which %s does not look at: leave it out",
			  options[i].option, about, mode);
		return -EINVAL;
	}
	return 0;
}

/* Page faults and growth take nothing back; mappings take part in no threshold. */
static int check_unprobed(struct session_options *options,
			  const struct session_options *environment, const char *name)
{
	bool growth = options->record == MODE_GROWTH, mappings = options->mappings;
	bool inuse =
		options->inuse_interval && options->inuse_interval != environment->inuse_interval;
	bool freed = options->free_interval && options->free_interval != environment->free_interval;
	bool allocated =
		options->alloc_interval && options->alloc_interval != environment->alloc_interval;
	const struct useless_option blocks[] = {
		{inuse && !growth, "--inuse-interval"},
		{freed, "--free-interval"},
		{allocated && mappings, "--alloc-interval"},
		{options->fork_copy, "--fork-copy"},
		{options->max_slowdown, "--max-slowdown"},
		{options->symbol_prefix, "--symbol-prefix"},
		{options->signature_file_count, "--signatures-from"},
		{options->max_live, "--max-live"},
		{options->mode != ATTACH_AUTO, "--attach"},
		{options->plain_entries, "--plain-entries"},
	};
	const struct useless_option samples[] = {
		{options->rate_given && options->record != MODE_FAULTS, "--sample-bytes"},
	};

	if (refuse(blocks, ARRAY_SIZE(blocks), "blocks of an allocator", name) ||
	    refuse(samples, ARRAY_SIZE(samples), "samples", name))
		return -EINVAL;
	options->free_interval = 0;
	if (!growth)
		options->inuse_interval = 0;
	options->max_live = 1;
	if (options->record != MODE_FAULTS || options->sample_bytes <= SMALLEST_FAULT)
		options->sample_bytes = 1;
	/* Only a probe could meet the filter. */
	options->target.force = true;
	return 0;
}

/* Where it is asked for; where it is only chosen later, both have been of use. */
static int check_sampler(const struct session_options *options)
{
	const struct useless_option calls[] = {
		{options->max_slowdown, "--max-slowdown"},
	};

	if (!options->rate_given)
		return refuse(calls, ARRAY_SIZE(calls), "every call of an allocator",
			      "--mode sampler");
	log_error(0, "--sample-bytes is about heaptap's own samples, and with --mode sampler the "
		     "allocator's are taken: leave it out, or --mode");
	return -EINVAL;
}

int record_mode_check(struct session_options *options, const struct session_options *environment)
{
	const char *unprobed;
	int err = 0;

	if (options->mappings && options->record != MODE_HEAP) {
		if (options->mappings != environment->mappings) {
			log_error(0, "mappings are counted with --mode heap only: leave --mmap and "
				     "--mmap-only out, or --mode");
			return -EINVAL;
		}
		options->mappings = MAPPINGS_NONE;
	}
	unprobed = unprobed_name(options, environment);
	if (unprobed)
		err = check_unprobed(options, environment, unprobed);
	else if (options->record == MODE_SAMPLER)
		err = check_sampler(options);
	if (options->inuse_interval == INTERVAL_DEFAULT)
		options->inuse_interval = DEFAULT_INUSE_INTERVAL;
	return err;
}
