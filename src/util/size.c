/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static int digits_parse(const char *text, char **end, uint64_t *ret)
{
	unsigned long long value;

	/* strtoull would take blanks and a sign. */
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, end, 10);
	if (errno)
		return -errno;
	*ret = value;
	return 0;
}

int size_parse(const char *text, uint64_t *ret)
{
	unsigned int shift = 0;
	uint64_t value;
	char *end;
	int err;

	err = digits_parse(text, &end, &value);
	if (err)
		return err;
	switch (toupper((unsigned char)*end)) {
	case 'K':
		shift = 10;
		end++;
		break;
	case 'M':
		shift = 20;
		end++;
		break;
	case 'G':
		shift = 30;
		end++;
		break;
	}
	if (*end)
		return -EINVAL;
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = value << shift;
	return 0;
}

int number_parse(const char *text, uint64_t max, uint64_t *ret)
{
	uint64_t value;
	char *end;
	int err;

	err = digits_parse(text, &end, &value);
	if (err)
		return err;
	if (*end)
		return -EINVAL;
	if (value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}
