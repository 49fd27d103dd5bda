/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The loader's part in letting exceptions pass return probes (heaptap/throw.h): a thread of its
 * own, because the throwing one waits for it.
 */
#ifndef HEAPTAP_THROWS_H
#define HEAPTAP_THROWS_H

#include "kernel.h"

struct throws;

/* The kernel must outlive the throws. Errors: -ENOMEM, or those of pthread_create(). */
int throws_new(struct kernel *kernel, struct throws **ret);
void throws_free(struct throws *throws);
DEFINE_CLEANUP(throws, struct throws *, throws_free)

#endif
