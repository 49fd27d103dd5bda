/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which frames drop_frames and keep_frames take out of sight, as pprof's
 * Profile.RemoveUninteresting does it: in every stack the frame nearest to the root whose function
 * matches ^(drop_frames)$ and not ^(keep_frames)$, and everything it called. Frames before the
 * first one that does not match are left, so that no stack becomes empty. Names are matched without
 * their argument list.
 */
#ifndef HEAPTAP_PROFILE_PRUNE_H
#define HEAPTAP_PROFILE_PRUNE_H

#include <stddef.h>
#include <stdint.h>

#include "profile/profile.h"

struct prune;

/*
 * Prepares the expressions of a profile, which must outlive the result. Profiles are foreign: an
 * expression that is not valid prunes nothing, as in pprof; see pattern.h for what is understood.
 * Errors: -ENOMEM.
 */
int prune_new(const struct profile *profile, struct prune **ret);
void prune_free(struct prune *prune);
DEFINE_CLEANUP(prune, struct prune *, prune_free)

/* The first of a sample's locations that stays; those before it are pruned. */
size_t prune_first_location(const struct prune *prune, const struct profile_sample *sample);
/* The first of a location's lines that stays, where inlined calls are pruned. */
size_t prune_first_line(const struct prune *prune, uint32_t location);

/* The length of a function's name without its arguments; *name moves past a leading dot. */
size_t prune_simplify(const char **name);

#endif
