/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/printable.h"

#include <stdbool.h>
#include <string.h>

static bool continues(const unsigned char *text, size_t size, size_t count)
{
	for (size_t i = 1; i <= count; i++)
		if (i >= size || (text[i] & 0xc0) != 0x80)
			return false;
	return true;
}

/* The length of the valid character that text begins with, or 0. RFC 3629, 4. */
static size_t character_length(const unsigned char *text, size_t size)
{
	if (text[0] < 0x80)
		return 1;
	if (text[0] >= 0xc2 && text[0] <= 0xdf)
		return continues(text, size, 1) ? 2 : 0;
	if (text[0] >= 0xe0 && text[0] <= 0xef) {
		if (!continues(text, size, 2) || (text[0] == 0xe0 && text[1] < 0xa0) ||
		    (text[0] == 0xed && text[1] > 0x9f))
			return 0;
		return 3;
	}
	if (text[0] >= 0xf0 && text[0] <= 0xf4) {
		if (!continues(text, size, 3) || (text[0] == 0xf0 && text[1] < 0x90) ||
		    (text[0] == 0xf4 && text[1] > 0x8f))
			return 0;
		return 4;
	}
	return 0;
}

static bool is_control(const unsigned char *character, size_t length)
{
	return (length == 1 && (character[0] < 0x20 || character[0] == 0x7f)) ||
	       (length == 2 && character[0] == 0xc2 && character[1] < 0xa0);
}

static void repair(char *text, size_t size, bool controls)
{
	for (size_t i = 0; i < size;) {
		unsigned char *at = (unsigned char *)text + i;
		size_t length = character_length(at, size - i);

		if (!length || (controls && is_control(at, length))) {
			length = length ? length : 1;
			memset(at, '?', length);
		}
		i += length;
	}
}

void utf8_repair(char *text, size_t size)
{
	repair(text, size, false);
}

void printable(char *text)
{
	repair(text, strlen(text), true);
}
