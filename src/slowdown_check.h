/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Before a recording: what would it cost the processes that run already? Their calls are counted
 * for a moment. Part of the session: prints its errors.
 */
#ifndef HEAPTAP_SLOWDOWN_CHECK_H
#define HEAPTAP_SLOWDOWN_CHECK_H

#include "session.h"

/*
 * Refuses, with a negative errno, if it would be more than options->max_slowdown percent for one of
 * the target's processes.
 */
int slowdown_check(const struct session_options *options, enum attach_mode mode,
		   const struct target *target);

#endif
