/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "output/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void buffer_fini(struct buffer *buffer)
{
	free(buffer->data);
}

void buffer_put(struct buffer *buffer, const void *bytes, size_t size)
{
	size_t capacity = buffer->capacity ? buffer->capacity : 256;
	uint8_t *data;

	if (buffer->err || !size)
		return;
	while (capacity - buffer->size < size)
		capacity *= 2;
	if (capacity != buffer->capacity) {
		data = realloc(buffer->data, capacity);
		if (!data) {
			buffer->err = -ENOMEM;
			return;
		}
		buffer->data = data;
		buffer->capacity = capacity;
	}
	memcpy(buffer->data + buffer->size, bytes, size);
	buffer->size += size;
}
