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
#include "util/log.h"
#include "util/size.h"

#define MAX_PIDS 64

enum {
	OPT_DEBUG_DIR = 256,
	OPT_SYMBOL_PREFIX,
	OPT_SIGNATURES_FROM,
	OPT_ATTACH,
};

struct doctor_args {
	pid_t pids[MAX_PIDS];
	size_t pid_count;
	enum attach_mode mode;
	const char *symbol_prefix;
	const char **debug_dirs;
	size_t debug_dir_count;
	const char **signature_files;
	size_t signature_file_count;
};

static const struct argp_option doctor_options[] = {
	{"pid", 'p', "PID[,PID...]", 0, "Also look into these processes", 0},
	{"attach", OPT_ATTACH, "MODE", 0, "As for `heaptap record`", 0},
	{"symbol-prefix", OPT_SYMBOL_PREFIX, "PREFIX", 0, "As for `heaptap record`", 0},
	{"signatures-from", OPT_SIGNATURES_FROM, "FILE", 0, "As for `heaptap record`", 0},
	{"debug-dir", OPT_DEBUG_DIR, "DIR", 0, "As for `heaptap record`", 0},
	{}};

static const char doctor_doc[] =
	"Can this be profiled, how well, and at what cost?\v"
	"Looks at the machine and measures what a probe costs on it. For each PID: allocators and "
	"probe points, stacks, names, and the calls of one second, which give the slowdown to "
	"expect. The process goes on. Exit status: 0 profiling is possible, 1 it is not, 2 wrong "
	"usage.";

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
		argp_error(state, "'%s' is no option: give processes as -p PID[,PID...]", arg);
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
	return possible;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp argp = {
		.options = doctor_options,
		.parser = parse_option,
		.doc = doctor_doc,
	};
	struct doctor_args args = {};
	int status = 1;

	if (!argp_parse(&argp, argc, argv, 0, NULL, &args))
		status = run(&args) ? 0 : 1;
	free(args.debug_dirs);
	free(args.signature_files);
	return status;
}
