/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* heaptap report: a profile, by heaptap or any other writer of profile.proto, as text. */
#include "commands.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "output/output.h"
#include "profile/diff.h"
#include "util/cleanup.h"
#include "util/log.h"

enum {
	OPTION_BASE = 256,
	OPTION_TEXT,
	OPTION_FOLDED,
	OPTION_SAMPLE_INDEX,
	OPTION_FULL_NAMES,
};

struct report_args {
	const char *path;
	const char *base_path;
	const char *format;
	const char *sample_index;
	bool full_names;
};

static const struct argp_option report_options[] = {
	{"base", OPTION_BASE, "FILE", 0, "Show the difference to this profile", 0},
	{"text", OPTION_TEXT, NULL, 0, "A table of functions (default)", 0},
	{"folded", OPTION_FOLDED, NULL, 0, "One line per stack, for flame graphs", 0},
	{"full-names", OPTION_FULL_NAMES, NULL, 0,
	 "C++ names with their parameters and template arguments", 0},
	{"sample-index", OPTION_SAMPLE_INDEX, "TYPE", 0,
	 "What to show, by name or number: inuse_space, inuse_objects, alloc_space, alloc_objects; "
	 "fault_space, faults; whatever the profile has",
	 0},
	{0},
};

static error_t report_option(int key, char *arg, struct argp_state *state)
{
	struct report_args *args = state->input;

	switch (key) {
	case OPTION_BASE:
		args->base_path = arg;
		return 0;
	case OPTION_TEXT:
	case OPTION_FOLDED:
		if (args->format)
			argp_error(state, "give one of --text and --folded");
		args->format = key == OPTION_TEXT ? "text" : "folded";
		return 0;
	case OPTION_FULL_NAMES:
		args->full_names = true;
		return 0;
	case OPTION_SAMPLE_INDEX:
		args->sample_index = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (args->path)
			argp_error(state,
				   "one FILE at a time, '%s' is a second one; "
				   "for a difference use --base",
				   arg);
		args->path = arg;
		return 0;
	case ARGP_KEY_END:
		if (!args->path)
			argp_error(state, "no FILE given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int find_sample_type(const struct profile *profile, const struct report_args *args,
			    size_t *ret)
{
	char names[512] = "";
	size_t length = 0;

	if (profile_find_sample_type(profile, args->sample_index, ret) == 0)
		return 0;
	for (size_t i = 0; i < profile->sample_type_count && length < sizeof(names); i++)
		length += snprintf(names + length, sizeof(names) - length, "%s%s", i ? ", " : "",
				   profile->strings[profile->sample_types[i].type]);
	if (!profile->sample_type_count)
		return log_error(0,
				 "'%s' has no sample types, so there is nothing to show; "
				 "give another file",
				 args->path);
	return log_error(0, "'%s' has no sample type '%s'; it has: %s", args->path,
			 args->sample_index, names);
}

/* Even without a base: pprof, too, merges equal samples before it looks at them. */
static int subtract_base(struct profile *profile, const struct report_args *args)
{
	struct profile *base CLEANUP(profile) = NULL;
	int err;

	if (args->base_path) {
		err = command_read_profile(args->base_path, &base);
		if (err)
			return err;
	}
	err = profile_subtract(profile, base);
	if (err == -EINVAL)
		return log_error(0,
				 "'%s' and '%s' have different sample types; "
				 "give two profiles of the same kind",
				 args->path, args->base_path);
	if (err)
		return log_error(err, "cannot merge the samples of '%s'", args->path);
	return 0;
}

static int render(const struct profile *profile, const struct report_args *args)
{
	const struct output_format *format = output_find(args->format ? args->format : "text");
	struct output_options options = {.full_names = args->full_names};
	int err;

	err = find_sample_type(profile, args, &options.sample_index);
	if (err)
		return err;
	err = format->write(profile, &options, stdout);
	if (fflush(stdout) != 0 && !err)
		err = -errno;
	/* The reader, a pager or head, has seen enough. */
	if (err && err != -EPIPE)
		log_error(err, "cannot write the report to standard output");
	return err;
}

int cmd_report(int argc, char **argv)
{
	static const struct argp argp = {
		.options = report_options,
		.parser = report_option,
		.args_doc = "FILE",
		.doc = "Show a profile as text, without other tools.\v"
		       "FILE is a pprof profile by `heaptap record`, a Go program or any other "
		       "tool.",
	};
	struct profile *profile CLEANUP(profile) = NULL;
	struct report_args args = {0};
	char name[] = "heaptap report";

	argp_err_exit_status = 2;
	argv[0] = name;
	if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0)
		return 2;
	/* A closed pipe is to be an error that we see, not a signal. */
	signal(SIGPIPE, SIG_IGN);
	if (command_read_profile(args.path, &profile) < 0)
		return 1;
	if (subtract_base(profile, &args) < 0)
		return 1;
	return render(profile, &args) < 0 ? 1 : 0;
}
