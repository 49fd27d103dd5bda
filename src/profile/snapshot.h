/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns the heap into a profile: scaled values, named frames, labels, and what is not in it. */
#ifndef HEAPTAP_PROFILE_SNAPSHOT_H
#define HEAPTAP_PROFILE_SNAPSHOT_H

#include "heaptap/losses.h"
#include "heaptap/sampler.h"
#include "profile/heap.h"
#include "profile/profile.h"
#include "profile/threads.h"
#include "symbolize/images.h"
#include "symbolize/symbolizer.h"

/* A process in the scope, for the labels of its samples. */
struct snapshot_process {
	uint32_t serial;
	pid_t pid;	 /* 0: several that have exited */
	pid_t inner_pid; /* in its own PID namespace, if that is another; else 0 */
	bool left;	 /* it has exited */
	bool done;	 /* and its last file was made */
	char comm[17];
	const char *container; /* or "" */
	const char *cgroup;    /* path, or "" */
	const char *program;   /* path of its file, or NULL: it is not known */
};

struct snapshot_input {
	const struct heap *heap;
	uint32_t accounts; /* set of those that it has, see accounts.h */
	struct images *images;
	struct symbolizer *symbolizer;
	const struct snapshot_process *processes; /* by serial */
	size_t process_count;
	const struct threads *threads;	   /* or NULL; not copied */
	pid_t only_pid;			   /* whose process alone the heap is, or 0 */
	const char *program;		   /* that process's, or NULL */
	bool only_left;			   /* files of processes that have exited, no others */
	const struct loss_counter *losses; /* LOSS_COUNT of them */
	uint64_t sample_bytes;
	bool own_samples; /* allocators have sampled by themselves: how often, and how */
	uint64_t estimates[ESTIMATE_COUNT];
	size_t late_files;     /* whose allocators were found after they had been mapped */
	uint64_t late_ns;      /* how long after at most, as far as it is known */
	size_t late_processes; /* likewise, that were started */
	size_t late_ended;     /* of them, before they were probed */
	uint64_t late_processes_ns;
	size_t refused_processes;    /* beside them, that could not be probed */
	const char *scope;	     /* in words, for the comments */
	const char *symbol_prefix;   /* of allocation functions, or NULL; letters and digits */
	const char *const *runtimes; /* what malloc's account lacks, likewise; not copied */
	size_t runtime_count;
	const char *reason;  /* why this snapshot was taken */
	int64_t time_ns;     /* CLOCK_REALTIME of the end of the epoch */
	int64_t duration_ns; /* since the beginning of the session */
};

/* NULL if the serial is not among the input's. */
const struct snapshot_process *snapshot_find_process(const struct snapshot_input *input,
						     uint32_t serial);

/* Returns 0 or -ENOMEM. */
int snapshot_build(const struct snapshot_input *input, struct profile **ret);

#endif
