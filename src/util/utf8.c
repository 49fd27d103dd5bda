/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/utf8.h"

#include <stddef.h>

/* The length of the UTF-8 character that text begins with, or 0 if it begins with none. */
static size_t character_length(const char *text)
{
	const unsigned char *bytes = (const unsigned char *)text;
	size_t length = bytes[0] < 0x80	   ? 1
			: bytes[0] < 0xc2  ? 0
			: bytes[0] < 0xe0  ? 2
			: bytes[0] < 0xf0  ? 3
			: bytes[0] <= 0xf4 ? 4
					   : 0;

	for (size_t i = 1; i < length; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	/* Longer than need be, surrogates, past the last code point. */
	if ((bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xed && bytes[1] > 0x9f) ||
	    (bytes[0] == 0xf0 && bytes[1] < 0x90) || (bytes[0] == 0xf4 && bytes[1] > 0x8f))
		return 0;
	return length;
}

void utf8_clean(char *text)
{
	for (size_t length; *text; text += length ? length : 1) {
		length = character_length(text);
		if (!length)
			*text = '?';
	}
}
