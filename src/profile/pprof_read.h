/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads pprof's profile.proto, gzip'd or not, as heaptap, Go programs and others write it. What it
 * accepts is valid as pprof's own CheckValid understands it.
 */
#ifndef HEAPTAP_PROFILE_PPROF_READ_H
#define HEAPTAP_PROFILE_PPROF_READ_H

#include <stddef.h>

#include "profile/profile.h"

/* A file may not be larger than this, nor grow past it when decompressed: 1 GiB. */
#define PPROF_READ_MAX_BYTES ((size_t)1 << 30)

/*
 * Errors: those of open() and read(), -ENODATA for an empty file, -EBADMSG for one that is no valid
 * profile, -E2BIG past the limit, -ENOMEM.
 */
int pprof_read(const char *path, struct profile **ret);
/* The same for bytes in memory. */
int pprof_parse(const void *data, size_t size, struct profile **ret);

#endif
