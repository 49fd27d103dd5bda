/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* heaptap record: command line and environment into session options. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "heaptap/weight.h"
#include "record_mode.h"
#include "util/log.h"
#include "util/size.h"

#define DEFAULT_SAMPLE_BYTES   (512ull << 10)
#define DEFAULT_ALLOC_INTERVAL (1ull << 30)
/* 16 MB of kernel memory; at the default rate enough for a heap of 64 GB. */
#define DEFAULT_MAX_LIVE (1u << 17)
/* 63 MB: with all else, 110 MB; half of it where forks are copied, which takes 55 MB. */
#define DEFAULT_MAX_LIVE_EXACT (1u << 19)
#define MAX_LIVE_LIMIT	       (1u << 26)
#define DEFAULT_MAX_STACKS     65536
#define MAX_STACKS_LIMIT       (1u << 24)
#define DEFAULT_MAX_PROCESSES  4096
#define MAX_PROCESSES_LIMIT    (1u << 22)
#define MAX_SLOWDOWN_LIMIT     100000000
/* As a weight it must fit 63 bits. */
#define MAX_INTERVAL (1ull << 54)
/* A timer's seconds must fit a signed 64-bit count of nanoseconds. */
#define MAX_SECONDS 9000000000ull

enum {
	OPT_ALLOC_INTERVAL = 256,
	OPT_FREE_INTERVAL,
	OPT_INUSE_INTERVAL,
	OPT_INTERVAL,
	OPT_DURATION,
	OPT_SAMPLE_BYTES,
	OPT_MAX_LIVE,
	OPT_ATTACH,
	OPT_KEEP_OLD,
	OPT_FORCE,
	OPT_DEBUG_DIR,
	OPT_NO_LINES,
	OPT_SYMBOL_PREFIX,
	OPT_PLAIN_ENTRIES,
	OPT_CONTAINER,
	OPT_CGROUP,
	OPT_UNIT,
	OPT_FOLLOW,
	OPT_NO_FOLLOW,
	OPT_FORK_COPY,
	OPT_SPLIT,
	OPT_LABEL_THREADS,
	OPT_MAX_STACKS,
	OPT_MAX_PROCESSES,
	OPT_SIGNATURES_FROM,
	OPT_MAX_SLOWDOWN,
	OPT_MODE,
	OPT_MMAP,
	OPT_MMAP_ONLY,
};

static const struct argp_option record_options[] = {
	{NULL, 0, NULL, 0, "Target:", 1},
	{"pid", 'p', "PID[,PID...]", 0, "The running process to attach to, or several", 1},
	{"all", 'a', NULL, 0, "Every process of the machine", 1},
	{"container", OPT_CONTAINER, "NAME|ID", 0,
	 "All processes of a container: docker, containerd, CRI-O, podman, runc, crun, "
	 "systemd-nspawn, LXC; the beginning of an id is enough; in Kubernetes also POD, POD/NAME "
	 "or NAMESPACE/POD/NAME",
	 1},
	{"cgroup", OPT_CGROUP, "PATH", 0, "All processes of a cgroup and those below it", 1},
	{"unit", OPT_UNIT, "NAME", 0, "All processes of a systemd unit", 1},
	{"follow", OPT_FOLLOW, NULL, 0,
	 "Take children along; other processes that use the same libraries then pay for the "
	 "probes, too",
	 1},
	{"no-follow", OPT_NO_FOLLOW, NULL, 0,
	 "Leave the children of a command out, which are taken along by default", 1},
	{"fork-copy", OPT_FORK_COPY, NULL, 0,
	 "A forked child has in use what its parent had; otherwise only what it allocates itself",
	 1},
	{"max-processes", OPT_MAX_PROCESSES, "COUNT", 0,
	 "Processes to count at a time (default 4096)", 1},
	{"max-slowdown", OPT_MAX_SLOWDOWN, "PERCENT", 0,
	 "Refuse, or end the session, if the target is slowed down by more than that, as is "
	 "expected within a factor of two; without it there is a warning above 50",
	 1},
	{"force", OPT_FORCE, NULL, 0, "Attach even where a seccomp filter may kill the target", 1},
	{"symbol-prefix", OPT_SYMBOL_PREFIX, "PREFIX", 0,
	 "Also look for allocation functions with this prefix, such as acme_malloc; known are je_, "
	 "_rjem_, tc_, mi_, rp, sn_ and scudo_",
	 1},
	{"signatures-from", OPT_SIGNATURES_FROM, "FILE", 0,
	 "Find the allocator of a stripped static program by the code of this library (.a or .o), "
	 "which it was linked with; may be repeated",
	 1},
	{NULL, 0, NULL, 0, "Output:", 2},
	{"output", 'o', "PREFIX", 0, "Write PREFIX.0001.pb.gz and on (default ./heaptap)", 2},
	{"split", OPT_SPLIT, NULL, 0,
	 "One series of files for each process: PREFIX.PID.0001.pb.gz and on", 2},
	{"label-threads", OPT_LABEL_THREADS, NULL, 0,
	 "Label samples with the name of the thread that allocated them (up to 4096 names; 26 MB "
	 "more of kernel memory)",
	 2},
	{"keep-old", OPT_KEEP_OLD, NULL, 0,
	 "Do not remove this prefix's older snapshots first (HEAP_PROFILE_CLEANUP=0)", 2},
	{"quiet", 'q', NULL, 0, "Print errors and warnings only", 2},
	{"verbose", 'v', NULL, 0, "Also print probe points and what the kernel says", 2},
	{NULL, 0, NULL, 0,
	 "When to take a snapshot (0 turns one off; sizes take K, M, G), besides SIGUSR2 and the "
	 "end:",
	 3},
	{"alloc-interval", OPT_ALLOC_INTERVAL, "SIZE", 0,
	 "Each time so many bytes were allocated (default 1G, HEAP_PROFILE_ALLOCATION_INTERVAL)",
	 3},
	{"free-interval", OPT_FREE_INTERVAL, "SIZE", 0,
	 "Each time so many bytes were freed (default 0, HEAP_PROFILE_DEALLOCATION_INTERVAL)", 3},
	{"inuse-interval", OPT_INUSE_INTERVAL, "SIZE", 0,
	 "When so much more is in use than at any snapshot before (default 100M, "
	 "HEAP_PROFILE_INUSE_INTERVAL)",
	 3},
	{"interval", OPT_INTERVAL, "SECONDS", 0,
	 "When the last snapshot is so old (default 0, HEAP_PROFILE_TIME_INTERVAL)", 3},
	{"duration", OPT_DURATION, "SECONDS", 0, "End the session after so long", 3},
	{NULL, 0, NULL, 0, "What to count:", 4},
	{"mode", OPT_MODE, "MODE", 0,
	 "heap: every call of the allocator (default); growth: what made the heap grow, at no cost "
	 "worth mentioning; faults: what made memory resident, in any language; sampler: what "
	 "the allocator itself samples (chosen by itself where it is as good)",
	 4},
	{"mmap", OPT_MMAP, NULL, 0,
	 "Also count anonymous mappings, in sample types of their own (HEAP_PROFILE_MMAP)", 4},
	{"mmap-only", OPT_MMAP_ONLY, NULL, 0, "Instead of malloc (HEAP_PROFILE_ONLY_MMAP)", 4},
	{"sample-bytes", OPT_SAMPLE_BYTES, "SIZE", 0,
	 "Mean distance between samples (default 512K, TCMALLOC_SAMPLE_PARAMETER); 1 counts every "
	 "allocation",
	 4},
	{"max-live", OPT_MAX_LIVE, "COUNT", 0,
	 "Live samples to keep track of, at 120 bytes of kernel memory each (default 131072; "
	 "524288 with --sample-bytes 1, 262144 with --fork-copy as well)",
	 4},
	{"max-stacks", OPT_MAX_STACKS, "COUNT", 0,
	 "Pieces of stacks to keep, of up to 32 frames and 300 bytes each (default 65536)", 4},
	{"attach", OPT_ATTACH, "HOW", 0,
	 "How to place probes: session, multi or perf (default: the best this kernel has)", 4},
	{"plain-entries", OPT_PLAIN_ENTRIES, NULL, 0,
	 "Probe the first instruction of each function, even if another is cheaper: to measure "
	 "what that saves",
	 4},
	{NULL, 0, NULL, 0, "Names:", 5},
	{"debug-dir", OPT_DEBUG_DIR, "DIR", 0,
	 "Look for separate debug files here first; laid out like /usr/lib/debug; may be repeated",
	 5},
	{"no-lines", OPT_NO_LINES, NULL, 0, "Name functions only, without source lines", 5},
	{}};

static const char record_doc[] =
	"Profile the heap of processes, a container, a cgroup, a unit or the whole machine into "
	"pprof snapshots.\v"
	"The target is not restarted, relinked or stopped. Snapshots are read by `heaptap report` "
	"and `go tool pprof`. Exit status: 0 done, 1 failed or a value is wrong, 2 wrong usage.";

/* A threshold in bytes, of an option or a variable. */
static int parse_interval(const char *name, const char *text, uint64_t *ret)
{
	uint64_t value;
	int err = size_parse(text, &value);

	if (err == -ERANGE || (!err && value > MAX_INTERVAL)) {
		log_error(0, "%s '%s' is too large: give at most %lluG, or 0 to turn it off", name,
			  text, MAX_INTERVAL >> 30);
		return EINVAL;
	}
	if (err) {
		log_error(0, "%s '%s' is no size: give a number of bytes, such as 524288 or 512K",
			  name, text);
		return EINVAL;
	}
	*ret = value;
	return 0;
}

static int parse_number_option(const char *name, const char *text, uint64_t max, uint64_t *ret)
{
	int err = number_parse(text, max, ret);

	if (err)
		log_error(0, "%s '%s' is %s: give a whole number up to %" PRIu64, name, text,
			  err == -ERANGE ? "too large" : "no number", max);
	return err ? EINVAL : 0;
}

static int parse_sample_bytes(const char *name, const char *text, uint64_t *ret)
{
	uint64_t value;
	int err = size_parse(text, &value);

	if (err || !value || value > SAMPLE_BYTES_MAX) {
		log_error(0,
			  "%s '%s' must be a number of bytes from 1 (count every allocation) to "
			  "2G; the "
			  "default is 512K",
			  name, text);
		return EINVAL;
	}
	*ret = value;
	return 0;
}

static int parse_attach(const char *text, enum attach_mode *ret)
{
	for (int mode = ATTACH_SESSION; mode <= ATTACH_PERF; mode++) {
		if (!strcmp(text, attach_mode_name(mode))) {
			*ret = mode;
			return 0;
		}
	}
	log_error(0, "--attach '%s' is no attach mode: use session, multi or perf", text);
	return EINVAL;
}

static int parse_mode(const char *text, enum record_mode *ret)
{
	static const char *const names[MODE_COUNT] = {
		[MODE_HEAP] = "heap",
		[MODE_GROWTH] = "growth",
		[MODE_FAULTS] = "faults",
		[MODE_SAMPLER] = "sampler",
	};

	for (int mode = 0; mode < MODE_COUNT; mode++) {
		if (!strcmp(text, names[mode])) {
			*ret = mode;
			return 0;
		}
	}
	log_error(0, "--mode '%s' is no mode: use heap, growth, faults or sampler", text);
	return EINVAL;
}

/* The same, at least 1. */
static int parse_count_option(const char *name, const char *text, uint64_t max, uint64_t *ret)
{
	int err = parse_number_option(name, text, max, ret);

	if (!err && !*ret) {
		log_error(0, "%s must be at least 1", name);
		err = EINVAL;
	}
	return err;
}

/* PID[,PID...] */
static int add_pids(struct session_options *options, const char *text)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *one;

	if (!copy)
		return ENOMEM;
	while ((one = strsep(&rest, ","))) {
		uint64_t number;
		pid_t *pids;

		if (parse_number_option("--pid", one, INT32_MAX, &number))
			return EINVAL;
		if (!number) {
			log_error(0, "no process with PID 0: `ps -e` lists the running ones");
			return EINVAL;
		}
		pids = reallocarray(options->target.pids, options->target.pid_count + 1,
				    sizeof(*pids));
		if (!pids)
			return ENOMEM;
		options->target.pids = pids;
		pids[options->target.pid_count++] = (pid_t)number;
	}
	return 0;
}

#define MAX_SYMBOL_PREFIX 64

static int parse_symbol_prefix(const char *text, const char **ret)
{
	size_t length = strlen(text);

	if (!length || length > MAX_SYMBOL_PREFIX ||
	    text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")]) {
		log_error(0,
			  "--symbol-prefix '%s' is no beginning of a function's name: give what "
			  "stands before malloc, such as acme_",
			  text);
		return EINVAL;
	}
	*ret = text;
	return 0;
}

/* Adds an argument of an option that may be repeated. */
static int add_argument(const char *name, const char *arg, const char ***list, size_t *count)
{
	const char **grown = reallocarray(*list, *count + 1, sizeof(*grown));

	if (!grown) {
		log_error(ENOMEM, "%s '%s'", name, arg);
		return ENOMEM;
	}
	*list = grown;
	grown[(*count)++] = arg;
	return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct session_options *options = state->input;

	switch (key) {
	case 'p':
		return add_pids(options, arg);
	case 'a':
		options->target.all = true;
		return 0;
	case OPT_CONTAINER:
		options->target.container = arg;
		return 0;
	case OPT_CGROUP:
		options->target.cgroup = arg;
		return 0;
	case OPT_UNIT:
		options->target.unit = arg;
		return 0;
	case OPT_FOLLOW:
		options->follow = true;
		return 0;
	case OPT_NO_FOLLOW:
		options->no_follow = true;
		return 0;
	case OPT_FORK_COPY:
		options->fork_copy = true;
		return 0;
	case OPT_SPLIT:
		options->split = true;
		return 0;
	case OPT_LABEL_THREADS:
		options->label_threads = true;
		return 0;
	case OPT_MAX_STACKS:
		return parse_count_option("--max-stacks", arg, MAX_STACKS_LIMIT,
					  &options->max_stacks);
	case OPT_MAX_PROCESSES:
		return parse_count_option("--max-processes", arg, MAX_PROCESSES_LIMIT,
					  &options->max_processes);
	case OPT_MAX_SLOWDOWN:
		return parse_count_option("--max-slowdown", arg, MAX_SLOWDOWN_LIMIT,
					  &options->max_slowdown);
	case 'o':
		options->prefix = arg;
		return 0;
	case 'q':
		log_set_level(LOG_QUIET);
		return 0;
	case 'v':
		log_set_level(LOG_VERBOSE);
		options->verbose = true;
		return 0;
	case OPT_KEEP_OLD:
		options->clean = false;
		return 0;
	case OPT_FORCE:
		options->target.force = true;
		return 0;
	case OPT_ALLOC_INTERVAL:
		return parse_interval("--alloc-interval", arg, &options->alloc_interval);
	case OPT_FREE_INTERVAL:
		return parse_interval("--free-interval", arg, &options->free_interval);
	case OPT_INUSE_INTERVAL:
		return parse_interval("--inuse-interval", arg, &options->inuse_interval);
	case OPT_INTERVAL:
		return parse_number_option("--interval", arg, MAX_SECONDS, &options->interval_s);
	case OPT_DURATION:
		return parse_number_option("--duration", arg, MAX_SECONDS, &options->duration_s);
	case OPT_SAMPLE_BYTES:
		options->rate_given = true;
		return parse_sample_bytes("--sample-bytes", arg, &options->sample_bytes);
	case OPT_MAX_LIVE:
		return parse_count_option("--max-live", arg, MAX_LIVE_LIMIT, &options->max_live);
	case OPT_DEBUG_DIR:
		return add_argument("--debug-dir", arg, &options->debug_dirs,
				    &options->debug_dir_count);
	case OPT_SIGNATURES_FROM:
		return add_argument("--signatures-from", arg, &options->signature_files,
				    &options->signature_file_count);
	case OPT_NO_LINES:
		options->no_lines = true;
		return 0;
	case OPT_SYMBOL_PREFIX:
		return parse_symbol_prefix(arg, &options->symbol_prefix);
	case OPT_PLAIN_ENTRIES:
		options->plain_entries = true;
		return 0;
	case OPT_MODE:
		options->mode_given = true;
		return parse_mode(arg, &options->record);
	case OPT_MMAP:
		if (!options->mappings)
			options->mappings = MAPPINGS_TOO;
		return 0;
	case OPT_MMAP_ONLY:
		options->mappings = MAPPINGS_ONLY;
		return 0;
	case OPT_ATTACH:
		return parse_attach(arg, &options->mode);
	case ARGP_KEY_ARG:
		/* The command begins here; what follows is its own. */
		options->target.command = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* As gperftools reads it. */
static bool is_true(const char *text)
{
	return text && *text && strchr("tTyY1", *text);
}

/* Environment variables come first; options override them. */
static int read_environment(struct session_options *options)
{
	const struct {
		const char *name;
		uint64_t *value;
	} variables[] = {
		{"HEAP_PROFILE_ALLOCATION_INTERVAL", &options->alloc_interval},
		{"HEAP_PROFILE_DEALLOCATION_INTERVAL", &options->free_interval},
		{"HEAP_PROFILE_INUSE_INTERVAL", &options->inuse_interval},
	};
	const char *text = getenv("HEAP_PROFILE_CLEANUP");
	int err;

	if (text)
		options->clean = !strchr("0nNfF", *text) || !*text;
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		text = getenv(variables[i].name);
		if (!text || !*text)
			continue;
		err = parse_interval(variables[i].name, text, variables[i].value);
		if (err)
			return err;
	}
	if (is_true(getenv("HEAP_PROFILE_MMAP")))
		options->mappings = MAPPINGS_TOO;
	if (is_true(getenv("HEAP_PROFILE_ONLY_MMAP")))
		options->mappings = MAPPINGS_ONLY;
	text = getenv("HEAP_PROFILE_TIME_INTERVAL");
	if (text && *text) {
		err = parse_number_option("HEAP_PROFILE_TIME_INTERVAL", text, MAX_SECONDS,
					  &options->interval_s);
		if (err)
			return err;
	}
	/* 0 means "off" to tcmalloc, which may be what the variable was set for. */
	text = getenv("TCMALLOC_SAMPLE_PARAMETER");
	if (text && *text && strcmp(text, "0"))
		return parse_sample_bytes("TCMALLOC_SAMPLE_PARAMETER", text,
					  &options->sample_bytes);
	return 0;
}

static uint32_t default_max_live(const struct session_options *options)
{
	if (options->sample_bytes > 1)
		return DEFAULT_MAX_LIVE;
	return options->fork_copy ? DEFAULT_MAX_LIVE_EXACT / 2 : DEFAULT_MAX_LIVE_EXACT;
}

int cmd_record(int argc, char **argv)
{
	static const struct argp argp = {
		.options = record_options,
		.parser = parse_option,
		.args_doc = "-p PID[,PID...]\n--container NAME|ID\n--cgroup PATH\n"
			    "--unit NAME\n-a\n-- COMMAND [ARG...]",
		.doc = record_doc,
	};
	struct session_options options = {
		.prefix = "./heaptap",
		.sample_bytes = DEFAULT_SAMPLE_BYTES,
		.alloc_interval = DEFAULT_ALLOC_INTERVAL,
		.inuse_interval = INTERVAL_DEFAULT,
		.max_stacks = DEFAULT_MAX_STACKS,
		.max_processes = DEFAULT_MAX_PROCESSES,
		.clean = true,
	};
	struct session_options environment;
	int scopes, in_cgroup, err;

	/* A value that is wrong has had its line; only unknown options are wrong usage (2). */
	if (read_environment(&options))
		return 1;
	environment = options;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options))
		return 1;
	in_cgroup = (options.target.container != NULL) + (options.target.cgroup != NULL) +
		    (options.target.unit != NULL);
	scopes = (options.target.pid_count > 0) + (options.target.command != NULL) +
		 options.target.all + in_cgroup;
	if (scopes != 1) {
		log_error(0, scopes ? "give one of -p PID, --container, --cgroup, --unit, -a and a "
				      "command, not several"
				    : "nothing to profile: give -p PID, --container NAME, --cgroup "
				      "PATH, --unit NAME, -a, or a command after --");
		return 2;
	}
	/* What is in a cgroup is in it with its children. */
	options.reach_all = options.follow;
	options.follow |= in_cgroup || options.target.command;
	options.follow &= !options.no_follow;
	if (options.fork_copy && !options.follow && !options.target.all && !in_cgroup) {
		log_error(0, "--fork-copy is about children, and they are not taken along: %s",
			  options.no_follow ? "leave --no-follow out" : "add --follow");
		return 2;
	}
	if (record_mode_check(&options, &environment))
		return 2;
	if (!options.max_live)
		options.max_live = default_max_live(&options);
	err = session_run(&options);
	free(options.target.pids);
	free(options.debug_dirs);
	free(options.signature_files);
	return err ? 1 : 0;
}
