/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* heaptap doctor: the command line, the order of the reports, and the exit status. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "doctor.h"
#include "proc/process.h"
#include "target.h"
#include "util/log.h"
#include "util/size.h"

#define MAX_PIDS 64

/* Of a scope: each takes a second or two. */
#define MAX_LOOKED_INTO 8

enum {
	OPT_DEBUG_DIR = 256,
	OPT_SYMBOL_PREFIX,
	OPT_SIGNATURES_FROM,
	OPT_ATTACH,
	OPT_CONTAINER,
	OPT_CGROUP,
	OPT_UNIT,
};

struct doctor_args {
	pid_t pids[MAX_PIDS];
	size_t pid_count;
	struct target_options scope;
	enum attach_mode mode;
	const char *symbol_prefix;
	const char **debug_dirs;
	size_t debug_dir_count;
	const char **signature_files;
	size_t signature_file_count;
};

static const struct argp_option doctor_options[] = {
	{"pid", 'p', "PID[,PID...]", 0, "Also look into these processes", 0},
	{"all", 'a', NULL, 0,
	 "Also look into all processes; of more than 8, those that have used most CPU", 0},
	{"container", OPT_CONTAINER, "NAME|ID", 0,
	 "The same for a container, named as for `record`", 0},
	{"cgroup", OPT_CGROUP, "PATH", 0, "For a cgroup and those below it", 0},
	{"unit", OPT_UNIT, "NAME", 0, "For a systemd unit", 0},
	{"attach", OPT_ATTACH, "HOW", 0, "As for `heaptap record`", 0},
	{"symbol-prefix", OPT_SYMBOL_PREFIX, "PREFIX", 0, "As for `heaptap record`", 0},
	{"signatures-from", OPT_SIGNATURES_FROM, "FILE", 0, "As for `heaptap record`", 0},
	{"debug-dir", OPT_DEBUG_DIR, "DIR", 0, "As for `heaptap record`", 0},
	{}};

static const char doctor_doc[] =
	"Can this be profiled, how well, and at what cost?\v"
	"Looks at the machine and measures what a probe costs on it. For each process: allocators "
	"and probe points, stacks, names, and the calls of one second, which give the slowdown to "
	"expect. The process goes on. Exit status: 0 malloc's heap can be profiled, 1 it cannot or "
	"a value is wrong, 2 wrong usage. `heaptap record --mode faults` and --mmap-only need no "
	"allocator and may work all the same.";

static int add_argument(const char *arg, const char ***list, size_t *count)
{
	const char **grown = reallocarray(*list, *count + 1, sizeof(*grown));

	if (!grown)
		return ENOMEM;
	*list = grown;
	grown[(*count)++] = arg;
	return 0;
}

static int parse_pids(struct doctor_args *args, const char *text)
{
	_cleanup_free_ char *copy = strdup(text);
	char *rest = copy, *word;

	if (!copy)
		return ENOMEM;
	while ((word = strsep(&rest, ","))) {
		uint64_t pid;

		if (number_parse(word, INT_MAX, &pid) || !pid) {
			log_error(0, "--pid '%s' is no PID: give numbers with commas between",
				  word);
			return EINVAL;
		}
		if (args->pid_count == MAX_PIDS) {
			log_error(0, "more than %d PIDs: look into some of them first", MAX_PIDS);
			return EINVAL;
		}
		args->pids[args->pid_count++] = pid;
	}
	return 0;
}

static int parse_attach(const char *text, enum attach_mode *ret)
{
	for (enum attach_mode mode = ATTACH_SESSION; mode <= ATTACH_PERF; mode++) {
		if (!strcmp(text, attach_mode_name(mode))) {
			*ret = mode;
			return 0;
		}
	}
	log_error(0, "--attach '%s' is no attach mode: use session, multi or perf", text);
	return EINVAL;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct doctor_args *args = state->input;

	switch (key) {
	case 'p':
		return parse_pids(args, arg);
	case 'a':
		args->scope.all = true;
		return 0;
	case OPT_CONTAINER:
		args->scope.container = arg;
		return 0;
	case OPT_CGROUP:
		args->scope.cgroup = arg;
		return 0;
	case OPT_UNIT:
		args->scope.unit = arg;
		return 0;
	case OPT_ATTACH:
		return parse_attach(arg, &args->mode);
	case OPT_SYMBOL_PREFIX:
		args->symbol_prefix = arg;
		return 0;
	case OPT_DEBUG_DIR:
		return add_argument(arg, &args->debug_dirs, &args->debug_dir_count);
	case OPT_SIGNATURES_FROM:
		return add_argument(arg, &args->signature_files, &args->signature_file_count);
	case ARGP_KEY_ARG:
		argp_error(
			state,
			"'%s' is no option: give processes as -p PID[,PID...] or --container NAME",
			arg);
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

void doctor_say(const char *label, const char *format, ...)
{
	va_list args;

	printf("  %-18s ", label);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

void doctor_refuse(const char *format, ...)
{
	va_list args;

	printf("  %-18s ", "NOT POSSIBLE");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

struct candidate {
	pid_t pid;
	uint64_t used_ns;
};

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->used_ns < y->used_ns) - (x->used_ns > y->used_ns);
}

/* Those of a scope that have used most CPU. Returns whether one can be profiled. */
static bool run_scope(const struct doctor *doctor, const struct target_options *options)
{
	struct target *target CLEANUP(target) = NULL;
	_cleanup_free_ struct candidate *candidates = NULL;
	_cleanup_free_ pid_t *pids = NULL;
	bool possible = false;
	size_t count;

	if (target_open(options, &target))
		return false;
	pids = target_pids(target, &count);
	candidates = calloc(count + 1, sizeof(*candidates));
	if (!pids || !candidates)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct process_cpu cpu = {};

		candidates[i].pid = pids[i];
		if (!process_cpu(pids[i], &cpu))
			candidates[i].used_ns = cpu.used_ns;
	}
	qsort(candidates, count, sizeof(*candidates), by_use);
	printf("\nScope: %s, %zu process%s%s\n", target_words(target), count,
	       count == 1 ? "" : "es",
	       count > MAX_LOOKED_INTO ? "; those that have used most CPU:" : "");
	if (!count)
		doctor_refuse("there is no process in it yet; `heaptap record` waits for one");
	for (size_t i = 0; i < count && i < MAX_LOOKED_INTO; i++) {
		putchar('\n');
		fflush(stdout);
		possible |= doctor_process(doctor, candidates[i].pid);
	}
	return possible;
}

static bool run(const struct doctor_args *args)
{
	struct doctor doctor = {
		.mode = args->mode,
		.points =
			{
				.symbol_prefix = args->symbol_prefix,
				.debug_dirs = args->debug_dirs,
				.debug_dir_count = args->debug_dir_count,
				.signature_files = args->signature_files,
				.signature_file_count = args->signature_file_count,
			},
	};
	bool possible = doctor_machine(&doctor);

	for (size_t i = 0; i < args->pid_count; i++) {
		putchar('\n');
		fflush(stdout);
		if (!doctor_process(&doctor, args->pids[i]))
			possible = false;
	}
	if (args->scope.all || args->scope.container || args->scope.cgroup || args->scope.unit)
		possible &= run_scope(&doctor, &args->scope);
	return possible;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp argp = {
		.options = doctor_options,
		.parser = parse_option,
		.args_doc =
			"\n-p PID[,PID...]\n--container NAME|ID\n--cgroup PATH\n--unit NAME\n-a",
		.doc = doctor_doc,
	};
	/* What its filter may do is part of the report. */
	struct doctor_args args = {.scope.force = true};
	int status = 1;

	if (!argp_parse(&argp, argc, argv, 0, NULL, &args))
		status = run(&args) ? 0 : 1;
	free(args.debug_dirs);
	free(args.signature_files);
	return status;
}
