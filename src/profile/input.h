/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whole files and gzip streams in memory, up to a limit. */
#ifndef HEAPTAP_PROFILE_INPUT_H
#define HEAPTAP_PROFILE_INPUT_H

#include <stddef.h>
#include <stdint.h>

/*
 * The caller frees *ret. Errors: -E2BIG if there are more than max_bytes, -ENOMEM, and those of
 * open() and read().
 */
int input_read(const char *path, size_t max_bytes, uint8_t **ret, size_t *ret_size);

/* The same for a gzip stream of at most 4 GiB. -EBADMSG if it is damaged or ends too early. */
int input_gunzip(const void *data, size_t size, size_t max_bytes, uint8_t **ret, size_t *ret_size);

#endif
