/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a snapshot says about itself: how it was made, how good it is, and what is not in it. */
#ifndef HEAPTAP_PROFILE_COMMENTS_H
#define HEAPTAP_PROFILE_COMMENTS_H

#include "profile/profile.h"
#include "profile/snapshot.h"

void snapshot_comment(struct profile *profile, const struct snapshot_input *input);

#endif
