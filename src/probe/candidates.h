/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The functions of a process that may be probed, and which of them count. For points.c. */
#ifndef HEAPTAP_PROBE_CANDIDATES_H
#define HEAPTAP_PROBE_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/flow.h"
#include "probe/linkage.h"
#include "probe/points.h"

struct candidate {
	const struct linked_function *linked;
	struct place place;
	struct flow flow;	  /* its indexes are those of candidates */
	struct left_out left_out; /* reason is NULL if it counts */
	uint8_t flags;		  /* PROBE_SKIP_* */
};

/* By module, each address once. */
struct candidates {
	struct candidate *entries;
	size_t count;
	/* Of candidates_spread(), by index. */
	bool *reached;
	uint32_t *queue;
};

/* Finds them and how they reach each other. Errors: -ENOMEM; *ret is to be freed then, too. */
int candidates_find(struct linkage *linkage, struct candidates *ret);
void candidates_fini(struct candidates *candidates);

static inline void cleanup_candidates(struct candidates *candidates)
{
	candidates_fini(candidates);
}

/* Decides which ones count. Errors: -ENOMEM. */
int candidates_decide(struct linkage *linkage, struct candidates *candidates);

/*
 * Where calls or jumps to a candidate end up: itself, and what those that are left out jump to, and
 * with `calls`, what they call. Adds these to `reached`, which candidates_clear() empties.
 */
void candidates_spread(struct candidates *candidates, uint32_t first, bool calls);
void candidates_clear(struct candidates *candidates);

/* It does not count; other: the one that does instead, or NULL. */
void candidate_leave_out(struct candidate *candidate, const char *reason,
			 const struct candidate *other);

static inline bool candidate_counts(const struct candidate *candidate)
{
	return !candidate->left_out.reason;
}

/*
 * Whether what returns behind a call was entered on behalf of the candidate that makes it. Where
 * others make the call as well, what they allocate must not be lost: better that a pool which
 * refills itself there counts the refill, too. One that calls for all its blocks, or to move one,
 * would count them all twice.
 */
bool candidate_owns(const struct candidate *candidate, const struct flow_return *ret);

static inline bool candidate_frees(const struct candidate *candidate)
{
	return candidate->linked->function->kind == PROBE_FREE;
}

#endif
