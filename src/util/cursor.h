/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A cursor over foreign bytes that cannot run past its end.
 *
 * A read beyond the end returns 0 and sets `underflow`, which stays set: parsing code is linear
 * and checks once per record. Numbers are little endian.
 */
#ifndef HEAPTAP_UTIL_CURSOR_H
#define HEAPTAP_UTIL_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cursor {
	const uint8_t *pos;
	const uint8_t *end;
	bool underflow;
};

static inline struct cursor cursor_init(const void *data, size_t size)
{
	return (struct cursor){.pos = data, .end = (const uint8_t *)data + size};
}

static inline size_t cursor_left(const struct cursor *c)
{
	return c->end - c->pos;
}

/* The next size bytes, or NULL (and underflow) if there are not so many. */
static inline const void *cursor_bytes(struct cursor *c, size_t size)
{
	const uint8_t *bytes = c->pos;

	if (c->underflow || size > cursor_left(c)) {
		c->underflow = true;
		c->pos = c->end;
		return NULL;
	}
	c->pos += size;
	return bytes;
}

static inline uint64_t cursor_uint(struct cursor *c, size_t size)
{
	const void *bytes = cursor_bytes(c, size);
	uint64_t value = 0;

	if (bytes)
		memcpy(&value, bytes, size);
	return value;
}

static inline uint8_t cursor_u8(struct cursor *c)
{
	return cursor_uint(c, 1);
}

static inline uint16_t cursor_u16(struct cursor *c)
{
	return cursor_uint(c, 2);
}

static inline uint32_t cursor_u32(struct cursor *c)
{
	return cursor_uint(c, 4);
}

static inline uint64_t cursor_u64(struct cursor *c)
{
	return cursor_uint(c, 8);
}

/* LEB128, at most 10 bytes; bits past the 64th are dropped. */
static inline uint64_t cursor_uleb128(struct cursor *c)
{
	uint64_t value = 0;
	uint8_t byte;

	for (unsigned int shift = 0; shift < 70; shift += 7) {
		byte = cursor_u8(c);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return value;
	}
	c->underflow = true;
	return 0;
}

static inline int64_t cursor_sleb128(struct cursor *c)
{
	uint64_t value = 0;
	uint8_t byte;

	for (unsigned int shift = 0; shift < 70; shift += 7) {
		byte = cursor_u8(c);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			if (shift + 7 < 64 && (byte & 0x40))
				value |= ~(uint64_t)0 << (shift + 7);
			return value;
		}
	}
	c->underflow = true;
	return 0;
}

#endif
