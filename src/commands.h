/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The commands of heaptap. Each gets its own argv and returns the exit status: 0, 1 or 2. */
#ifndef HEAPTAP_COMMANDS_H
#define HEAPTAP_COMMANDS_H

#include "profile/profile.h"

int cmd_record(int argc, char **argv);	  /* snapshots to files */
int cmd_report(int argc, char **argv);	  /* render a profile as text */
int cmd_doctor(int argc, char **argv);	  /* what can be profiled, and at what cost */
int cmd_symbolize(int argc, char **argv); /* add names and lines to a profile */

/* Reads a profile; what is wrong with the file has been logged when an error is returned. */
int command_read_profile(const char *path, struct profile **ret);

#endif
