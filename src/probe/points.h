/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The probe points of a process: the allocation functions that its files define, those left out
 * that only call others, the instruction chosen for each, and how they call one another.
 */
#ifndef HEAPTAP_PROBE_POINTS_H
#define HEAPTAP_PROBE_POINTS_H

#include <stdbool.h>
#include <stddef.h>

#include "heaptap/probe.h"
#include "probe/linkage.h"

struct probe_point {
	const char *name;	/* in the file; owned by the linkage */
	struct probe_spec spec; /* spec.image is left 0 for the caller */
	uint64_t entry_offset;	/* file offset of the function */
	const char *why_entry;	/* why spec.offset is the plain entry; NULL: it is a cheaper one */
};

/* A function that is not probed. */
struct left_out {
	const char *name; /* owned by the linkage */
	const char *reason;
	const char *other; /* the function that counts instead, or NULL */
	bool delegates;	   /* the reason is that it only calls that one */
};

/* Of one module. */
struct module_points {
	struct probe_point *entries;
	size_t count;
	/* File offsets behind its calls of its own allocation functions... */
	uint32_t *nested;
	size_t nested_count;
	/* ...and of others' */
	uint32_t *foreign;
	size_t foreign_count;
	struct left_out *left_out;
	size_t left_out_count;
	bool throws;	       /* one of the functions may throw, and its return is probed */
	bool has_unwinder;     /* exceptions begin in this module... */
	uint64_t throw_offset; /* ...at this file offset: the instruction to probe */
};

struct points_options {
	bool plain_entries; /* no other instruction than each function's first */
};

struct probe_points {
	struct module_points *modules; /* as in the linkage */
	size_t module_count;
	bool truncated; /* the code was too large to see all calls between allocation functions */
};

/*
 * Finds the points. A module's functions of one family are taken only if they can allocate and
 * free. Errors: -ENOMEM, -E2BIG if a probe point lies past 4 GiB in its file.
 */
int probe_points_find(struct linkage *linkage, const struct points_options *options,
		      struct probe_points **ret);
void probe_points_free(struct probe_points *points);
DEFINE_CLEANUP(probe_points, struct probe_points *, probe_points_free)

#endif
