/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * heaptap symbolize: names and lines for a profile written without them, later or on a machine that
 * has the debug files. Every mapping gets a line that says what was found for it, or why nothing.
 */
#include "commands.h"

#include <argp.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "output/file.h"
#include "profile/naming.h"
#include "util/cleanup.h"
#include "util/log.h"
#include "util/regular.h"

#define DEBUG_ROOT "/usr/lib/debug"

struct symbolize_args {
	const char *path;
	const char *output;
	const char **debug_dirs;
	size_t debug_dir_count;
	bool quiet;
};

enum {
	OPTION_DEBUG_DIR = 256,
};

static const struct argp_option symbolize_options[] = {
	{"output", 'o', "OUT", 0, "Write this file instead of changing FILE", 0},
	{"debug-dir", OPTION_DEBUG_DIR, "DIR", 0,
	 "Look here for the files: DIR/PATH, DIR/.build-id/...; may be repeated", 0},
	{"quiet", 'q', NULL, 0, "Print errors only", 0},
	{0},
};

static int add_debug_dir(struct symbolize_args *args, const char *dir)
{
	const char **dirs =
		reallocarray(args->debug_dirs, args->debug_dir_count + 1, sizeof(*dirs));

	if (!dirs)
		return ENOMEM;
	args->debug_dirs = dirs;
	dirs[args->debug_dir_count++] = dir;
	return 0;
}

static error_t symbolize_option(int key, char *arg, struct argp_state *state)
{
	struct symbolize_args *args = state->input;

	switch (key) {
	case 'o':
		args->output = arg;
		return 0;
	case 'q':
		args->quiet = true;
		return 0;
	case OPTION_DEBUG_DIR:
		return add_debug_dir(args, arg);
	case ARGP_KEY_ARG:
		if (args->path)
			argp_error(state, "one FILE at a time, '%s' is a second one", arg);
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

/* One mapping's file, and what there is to say about the search for it. */
struct found_file {
	struct image *image;
	bool debug_only; /* the separate debug file alone */
	char reason[PATH_MAX + 256];
};

struct search {
	const struct symbolize_args *args;
	const char *filename;
	const char *build_id;
	uint64_t offset; /* of the mapping */
	struct found_file *found;
};

/* The build-id as libdw finds it, also in debug files whose program headers are the image's. */
static bool has_build_id(struct image *image, const char *build_id)
{
	char hex[2 * 64 + 1] = "";
	const void *id;
	ssize_t size = dwelf_elf_gnu_build_id(image_elf(image), &id);

	for (ssize_t i = 0; i < size && i < 64; i++)
		sprintf(hex + 2 * i, "%02x", ((const uint8_t *)id)[i]);
	return !strcasecmp(hex, build_id);
}

/* Opens a candidate; true ends the search. The first reason is kept: it is about the named file. */
static bool try_file(struct search *search, bool debug_only, const char *path)
{
	struct image *image CLEANUP(image) = NULL;
	struct found_file *found = search->found;
	char reason[sizeof(found->reason)];
	int fd = regular_open(path), err;

	err = fd < 0 ? fd : image_open(fd, path, &image);
	if (err == -ENOEXEC)
		snprintf(reason, sizeof(reason), "'%s' is no x86-64 ELF file", path);
	else if (err)
		snprintf(reason, sizeof(reason), "'%s': %s", path, strerror(-err));
	else if (*search->build_id && !has_build_id(image, search->build_id))
		snprintf(reason, sizeof(reason), "'%s' is another version, with build-id %s", path,
			 *image_build_id(image) ? image_build_id(image) : "unknown");
	else if (debug_only && image_assume_code(image, search->offset) < 0)
		snprintf(reason, sizeof(reason), "'%s' has no code segment", path);
	else
		*reason = 0;
	if (!*reason) {
		found->image = take_ptr(image);
		found->debug_only = debug_only;
		return true;
	}
	if (!*found->reason)
		strcpy(found->reason, reason);
	return false;
}

/* dir is a root folder with the same files, or one of debug files. */
static bool try_folder(struct search *search, const char *dir)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s%s", dir, search->filename) < (int)sizeof(path) &&
	    try_file(search, false, path))
		return true;
	if (strlen(search->build_id) < 4)
		return false;
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s", dir, search->build_id,
		 search->build_id + 2);
	return try_file(search, false, path);
}

static bool try_debug_file(struct search *search, const char *dir)
{
	char path[PATH_MAX];

	if (strlen(search->build_id) < 4)
		return false;
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug", dir, search->build_id,
		 search->build_id + 2);
	return try_file(search, true, path);
}

static void find_file(const struct symbolize_args *args, const struct profile *profile,
		      const struct profile_mapping *mapping, struct found_file *found)
{
	struct search search = {
		.args = args,
		.filename = profile->strings[mapping->filename],
		.build_id = profile->strings[mapping->build_id],
		.offset = mapping->offset,
		.found = found,
	};

	/* [vdso], //anon and others that the kernel or a JIT compiler has made up. */
	if (*search.filename != '/' || search.filename[1] == '/') {
		snprintf(found->reason, sizeof(found->reason), "no file is behind it");
		return;
	}
	if (try_file(&search, false, search.filename))
		return;
	for (size_t i = 0; i < args->debug_dir_count; i++) {
		if (try_folder(&search, args->debug_dirs[i]))
			return;
	}
	for (size_t i = 0; i < args->debug_dir_count; i++) {
		if (try_debug_file(&search, args->debug_dirs[i]))
			return;
	}
	try_debug_file(&search, DEBUG_ROOT);
}

static void print_mapping(const struct profile *profile, const struct profile_mapping *mapping,
			  const struct found_file *found, const struct naming_counts *counts)
{
	const char *name = profile->strings[mapping->filename];

	if (!counts->locations)
		return;
	printf("%s: %zu of %zu locations named", *name ? name : "(no name)", counts->named,
	       counts->locations);
	if (counts->named != counts->named_before)
		printf(" (before: %zu)", counts->named_before);
	printf(", %zu with lines", counts->lines);
	if (counts->lines != counts->lines_before)
		printf(" (before: %zu)", counts->lines_before);
	if (!found->image)
		printf("; left as it was: %s", found->reason);
	else if (found->debug_only || strcmp(image_path(found->image), name))
		printf("; from %s", image_path(found->image));
	putchar('\n');
}

static void close_files(struct found_file *files, size_t count)
{
	for (size_t i = 0; i < count; i++)
		image_free(files[i].image);
}

static int symbolize(const struct symbolize_args *args, const struct profile *profile,
		     struct found_file *files, struct image **images)
{
	struct symbolizer *symbolizer CLEANUP(symbolizer) = NULL;
	struct profile *named CLEANUP(profile) = NULL;
	struct symbolizer_options options = {
		.debug_dirs = args->debug_dirs,
		.debug_dir_count = args->debug_dir_count,
		.lines = true,
	};
	_cleanup_free_ struct naming_counts *counts =
		calloc(profile->mapping_count + 1, sizeof(*counts));
	const char *output = args->output ? args->output : args->path;
	int err = counts ? symbolizer_new(&options, &symbolizer) : -ENOMEM;

	for (size_t i = 0; i < profile->mapping_count; i++) {
		find_file(args, profile, &profile->mappings[i], &files[i]);
		images[i] = files[i].image;
	}
	if (!err)
		err = naming_apply(profile, images, symbolizer, counts, &named);
	if (err)
		return log_error(err, "cannot name '%s'", args->path);
	for (size_t i = 0; i < profile->mapping_count && !args->quiet; i++)
		print_mapping(profile, &profile->mappings[i], &files[i], &counts[i]);
	err = output_write_file(named, output_find("pprof"), output);
	if (err)
		return log_error(err, "cannot write '%s' (choose another file with -o)", output);
	return 0;
}

int cmd_symbolize(int argc, char **argv)
{
	static const struct argp argp = {
		.options = symbolize_options,
		.parser = symbolize_option,
		.args_doc = "FILE",
		.doc = "Name the functions and lines of a profile written without them.\v"
		       "A mapping's file is used if its build-id is the profile's. Locations that "
		       "have a name and a line already stay as they are.",
	};
	struct profile *profile CLEANUP(profile) = NULL;
	struct symbolize_args args = {0};
	_cleanup_free_ struct found_file *files = NULL;
	_cleanup_free_ struct image **images = NULL;
	_cleanup_free_ const char **debug_dirs = NULL;
	char name[] = "heaptap symbolize";
	int err;

	argp_err_exit_status = 2;
	argv[0] = name;
	err = argp_parse(&argp, argc, argv, 0, NULL, &args);
	debug_dirs = args.debug_dirs;
	if (err)
		return 2;
	if (command_read_profile(args.path, &profile) < 0)
		return 1;
	files = calloc(profile->mapping_count + 1, sizeof(*files));
	images = calloc(profile->mapping_count + 1, sizeof(*images));
	if (!files || !images) {
		log_error(ENOMEM, "cannot read '%s'", args.path);
		return 1;
	}
	err = symbolize(&args, profile, files, images);
	close_files(files, profile->mapping_count);
	return err ? 1 : 0;
}
