/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which options go with which mode of `heaptap record`. */
#ifndef HEAPTAP_RECORD_MODE_H
#define HEAPTAP_RECORD_MODE_H

#include "session.h"

/* Of inuse_interval: neither an option nor the environment has set it. */
#define INTERVAL_DEFAULT UINT64_MAX

/*
 * Makes options of what the mode is. Those that it has no use for are errors, which are printed;
 * what only the environment asks for is meant for other programs too, and is passed over.
 * environment: the options before the command line was read. Returns 0 or -EINVAL.
 */
int record_mode_check(struct session_options *options, const struct session_options *environment);

#endif
