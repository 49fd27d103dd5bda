/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The difference of two profiles, as `pprof -base` forms it. */
#ifndef HEAPTAP_PROFILE_DIFF_H
#define HEAPTAP_PROFILE_DIFF_H

#include "profile/profile.h"

/*
 * Subtracts base from p: samples with equal frames and labels become one, what only base has is
 * added with negative values, and samples that come out as zero are removed. Frames are equal if
 * their lines and their offset in an equal mapping are, so that address randomization between two
 * runs does not matter. base may be NULL: then samples are only made unique, without which a total
 * of absolute values would count what cancels out. Errors: -EINVAL if the sample types differ,
 * -ENOMEM; p is unchanged then.
 */
int profile_subtract(struct profile *p, const struct profile *base);

#endif
