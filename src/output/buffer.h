/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes that grow at their end. A failed addition is remembered in err, later ones do nothing. */
#ifndef HEAPTAP_OUTPUT_BUFFER_H
#define HEAPTAP_OUTPUT_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* All zero is an empty buffer. */
struct buffer {
	uint8_t *data;
	size_t size;
	size_t capacity;
	int err; /* 0 or -ENOMEM */
};

void buffer_fini(struct buffer *buffer);
void buffer_put(struct buffer *buffer, const void *bytes, size_t size);

#endif
