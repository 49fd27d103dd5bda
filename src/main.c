/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "util/cleanup.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"record", cmd_record, "snapshots of a process's heap to files"},
	{"report", cmd_report, "render a profile as text"},
	{"doctor", cmd_doctor, "can this be profiled, how well, and at what cost?"},
	{"symbolize", cmd_symbolize, "add names and lines to a profile"},
};

static void print_help(FILE *file)
{
	fputs("Usage: heaptap COMMAND [OPTION...]\n"
	      "A heap profiler that works from outside: no restart, no relinking.\n\n",
	      file);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(file, "  %-9s %s\n", commands[i].name, commands[i].help);
	fputs("\n`heaptap COMMAND --help` lists a command's options.\n", file);
}

int main(int argc, char **argv)
{
	char name[64];

	argp_err_exit_status = 2;
	if (argc < 2) {
		print_help(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		puts("heaptap " HEAPTAP_VERSION);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		/* For the usage lines of argp. */
		snprintf(name, sizeof(name), "heaptap %s", commands[i].name);
		argv[1] = name;
		return commands[i].run(argc - 1, argv + 1);
	}
	fprintf(stderr, "heaptap: no command '%s': `heaptap help` lists them\n", argv[1]);
	return 2;
}
