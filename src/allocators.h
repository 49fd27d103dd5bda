/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the allocators in the files that processes map, and puts the probes on them. Every file is
 * dealt with once, whichever process maps it and however often. Part of the session: prints its
 * errors.
 */
#ifndef HEAPTAP_ALLOCATORS_H
#define HEAPTAP_ALLOCATORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernel.h"
#include "probe/locate.h"
#include "probe/runtimes.h"
#include "symbolize/images.h"
#include "unwind/tables.h"
#include "util/cleanup.h"

struct allocators;
struct maps;

/* All of it must outlive the allocators. */
struct allocators_context {
	struct kernel *kernel;
	struct attach *attach;
	struct tables *tables;
	struct images *images;
	struct runtimes *runtimes;
	struct locate_options locate; /* for programs that name no allocator */
	const char *symbol_prefix;    /* of allocation functions, or NULL */
	bool plain_entries; /* no probe on a cheaper instruction than a function's first */
	/*
	 * Late files get an unwind table when a stack goes through them: most programs that a
	 * machine runs are over before one does.
	 */
	bool lazy_tables;
	bool all_rows;	/* tables have rows between call sites, too */
	bool no_probes; /* the files only get their tables */
	bool samplers;	/* probe what samples by itself, and no allocation functions */
	enum attach_mode mode;
};

/* Says what is wrong with a signature file; other errors: -ENOMEM. */
int allocators_new(const struct allocators_context *context, struct allocators **ret);
void allocators_free(struct allocators *allocators);
DEFINE_CLEANUP(allocators, struct allocators *, allocators_free)

/*
 * Takes in files that a command will map, the program first: their unwind tables are published
 * and probes placed when it returns. The files go to images, and what runtimes they are to
 * runtimes. Returns -ESRCH, and prints nothing, if
 * the process that the probes are for is gone.
 */
int allocators_add_files(struct allocators *allocators, char *const *paths, size_t count);

/* The same for the files that a process maps as code. Also prints nothing if that cannot be read.
 */
int allocators_add_process(struct allocators *allocators, pid_t pid);

/*
 * Takes in what a process has mapped since, and runs on: probes first; a large unwind table comes
 * in the background. maps is what it maps now; since_ns (CLOCK_MONOTONIC; 0 if not known) is when
 * the first of the new files was mapped. Says which of them have allocators. Returns how many were
 * new; -EAGAIN if one was unmapped before it could be opened; -ENOMEM. What else goes wrong with a
 * file is printed, and the others are taken in. That the process ends meanwhile does no harm: the
 * probes are for others, too.
 */
int allocators_add_late(struct allocators *allocators, pid_t pid, const struct maps *maps,
			uint64_t since_ns);

/* Whether files get probes, see no_probes. */
bool allocators_are_wanted(const struct allocators *allocators);
/* Files with probes. */
size_t allocators_count(const struct allocators *allocators);
/* Of the points of the functions that are called most, the share that the kernel single-steps. */
double allocators_stepped_share(const struct allocators *allocators);
/* Whether a file so far names a dynamic linker, which may load an allocator later. */
bool allocators_may_come(const struct allocators *allocators);

/* Of the files with probes, those that were mapped before their probes were in place. */
struct allocators_late {
	size_t count;
	uint64_t longest_ns; /* that they were without, as far as it is known */
};

struct allocators_late allocators_late(const struct allocators *allocators);

/* Prints that none of the files has an allocator, and what to do; returns a negative errno. */
int allocators_report_none(const struct allocators *allocators, const char *words);

#endif
