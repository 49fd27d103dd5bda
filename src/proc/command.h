/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A command that heaptap starts: which files it will map, and a child that is held before exec
 * until the probes are in place.
 */
#ifndef HEAPTAP_PROC_COMMAND_H
#define HEAPTAP_PROC_COMMAND_H

#include <stddef.h>
#include <sys/types.h>

#include "util/cleanup.h"

/* Paths of the files that exec of a command maps: first the program that really runs. */
struct command_files {
	char **paths;
	size_t count;
};

/*
 * Finds the program in PATH, follows #! lines, and asks its dynamic linker for the libraries,
 * which honours LD_PRELOAD and LD_LIBRARY_PATH. Errors: -ENOENT if there is no such program,
 * -ELIBACC if its #! interpreter is missing,
 * -EACCES if it is not executable, -EISDIR, -ELOOP for too many interpreters, -ENOMEM.
 */
int command_find_files(const char *program, struct command_files **ret);
void command_files_free(struct command_files *files);
DEFINE_CLEANUP(command_files, struct command_files *, command_files_free)

struct command {
	pid_t pid;
	int release_fd; /* closing it without a word ends the held child */
	int error_fd;	/* the errno of a failed exec; end of file after a successful one */
};

/* Forks the child. It has the caller's standard files, a clean signal mask, and waits. */
int command_hold(char *const argv[], struct command *ret);
/* Lets the child execute its command. Returns 0, or the negative errno of its exec. */
int command_release(struct command *command);
/* Ends a child that is still held, and reaps it. */
void command_abandon(struct command *command);

#endif
