/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The commands of heaptap. Each gets its own argv and returns the exit status: 0, 1 or 2. */
#ifndef HEAPTAP_COMMANDS_H
#define HEAPTAP_COMMANDS_H

int cmd_record(int argc, char **argv); /* snapshots to files */
int cmd_report(int argc, char **argv); /* render a profile as text */

#endif
