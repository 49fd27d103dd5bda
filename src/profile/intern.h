/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers for byte strings: equal bytes get the same number, counted from 0 by first sight. */
#ifndef HEAPTAP_PROFILE_INTERN_H
#define HEAPTAP_PROFILE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "util/cleanup.h"

struct intern;

int intern_new(struct intern **ret);
void intern_free(struct intern *intern);
DEFINE_CLEANUP(intern, struct intern *, intern_free)

/* Returns 1 if the bytes were new and are now number *ret, 0 if they were known, or -ENOMEM. */
int intern_add(struct intern *intern, const void *bytes, size_t size, uint32_t *ret);

size_t intern_count(const struct intern *intern);
/* The bytes of a number below the count: followed by a NUL, owned by the intern, never moved. */
const char *intern_bytes(const struct intern *intern, uint32_t number, size_t *ret_size);

#endif
