/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A recording session, from the first check to the last snapshot: owns the kernel side, the probes,
 * the heap and the event loop.
 */
#ifndef HEAPTAP_SESSION_H
#define HEAPTAP_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "heaptap/account.h"
#include "probe/attach.h"
#include "target.h"

struct session_options {
	struct target_options target;
	enum record_mode record;
	enum mappings_mode mappings;
	bool mode_given;    /* by the user, and so is not chosen */
	bool rate_given;    /* likewise sample_bytes */
	bool frees_unknown; /* MODE_SAMPLER: what is in use is not known, see samplers_choose() */
	bool follow;	    /* children of targets, too */
	bool no_follow;	    /* also where that is the default */
	bool reach_all;	    /* and that from their first instruction on, see scope_links.h */
	bool fork_copy;	    /* children inherit what their parents have in use */
	bool split;	    /* a series of files for each process */
	bool label_threads;
	const char *prefix;
	uint64_t sample_bytes;
	uint64_t alloc_interval; /* bytes; 0: off, and so below */
	uint64_t free_interval;
	uint64_t inuse_interval;
	uint64_t interval_s;
	uint64_t duration_s;
	uint64_t max_live; /* 0: by sample_bytes */
	uint64_t max_stacks;
	uint64_t max_processes;
	uint64_t max_slowdown; /* percent; 0: no limit, only a warning */
	enum attach_mode mode;
	const char **debug_dirs; /* folders like /usr/lib/debug */
	size_t debug_dir_count;
	const char **signature_files; /* static libraries that a stripped target may have */
	size_t signature_file_count;
	const char *symbol_prefix; /* of allocation functions, or NULL */
	bool no_lines;		   /* function names only */
	bool plain_entries;	   /* probes on first instructions only */
	bool clean;		   /* remove older snapshots of this prefix first */
	bool verbose;
};

/* The accounts that a session keeps, a set as of accounts.h. */
uint32_t session_accounts(const struct session_options *options);
/* Whether allocators are probed. */
bool session_probes(const struct session_options *options);
/* Whether every call of theirs traps, which may cost something. */
bool session_traps_calls(const struct session_options *options);

/* Runs until the target or the user ends it. Prints its errors; returns 0 or a negative errno. */
int session_run(const struct session_options *options);

#endif
