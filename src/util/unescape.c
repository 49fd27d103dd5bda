/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/unescape.h"

#include <stdbool.h>

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

void unescape_octal(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && is_octal(from[2]) &&
		    is_octal(from[3])) {
			*to = (from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0');
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = 0;
}
