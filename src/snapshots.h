/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The numbered snapshot files of a session, PREFIX.0001.pb.gz and on, and the lines that announce
 * them. Names, numbering and lines are gperftools'.
 */
#ifndef HEAPTAP_SNAPSHOTS_H
#define HEAPTAP_SNAPSHOTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "heaptap/account.h"
#include "heaptap/epoch.h"
#include "profile/profile.h"
#include "util/cleanup.h"

struct snapshots;

/* Checks that files can be made under the prefix. Prints its errors. */
int snapshots_open(const char *prefix, struct snapshots **ret);
void snapshots_close(struct snapshots *snapshots);
DEFINE_CLEANUP(snapshots, struct snapshots *, snapshots_close)

/*
 * Removes the prefix's older snapshots; to be called when nothing can keep the session from making
 * new ones. Prints its errors and goes on.
 */
void snapshots_remove_old(struct snapshots *snapshots);

/* What a session adds up, where it does not know what is in use. */
struct reason_sum {
	const char *what; /* "made resident" */
	uint64_t bytes;
};

/*
 * Why an epoch was closed, in gperftools' words where it has some. since_last_s: seconds since the
 * last snapshot. sum: NULL where what is in use is known.
 */
void snapshots_reason(const struct epoch_record *record, const struct reason_sum *sum,
		      unsigned long long since_last_s, char *text, size_t size);

/*
 * Announces and writes the next file, of a process alone (PREFIX.PID.0001.pb.gz) or of all (pid 0).
 * Prints its errors; the number is used up in any case.
 */
int snapshots_write(struct snapshots *snapshots, pid_t pid, const struct profile *profile,
		    const char *reason);

/* Says how many files were written, and how to look at the last one. */
void snapshots_report(const struct snapshots *snapshots);

#endif
