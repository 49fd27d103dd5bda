/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/threads.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* By number, each at a place of its own that does not move; "" until it is known. */
struct threads {
	char labels[THREAD_NAMES_MAX + 1][THREAD_NAME_SIZE];
	size_t count;
};

#define UNNAMED "(unnamed)"

int threads_new(struct threads **ret)
{
	struct threads *threads = calloc(1, sizeof(*threads));

	if (!threads)
		return -ENOMEM;
	*ret = threads;
	return 0;
}

void threads_free(struct threads *threads)
{
	free(threads);
}

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

void threads_add(struct threads *threads, uint32_t number, const struct thread_name *name)
{
	char *label;

	if (!number || number > THREAD_NAMES_MAX || *threads->labels[number])
		return;
	label = threads->labels[number];
	threads->count++;
	memcpy(label, name->text, THREAD_NAME_SIZE - 1);
	if (!*label)
		memcpy(label, UNNAMED, sizeof(UNNAMED));
	/* The kernel cuts names between bytes, and profiles hold UTF-8. */
	for (size_t length; *label; label += length ? length : 1) {
		length = character_length(label);
		if (!length)
			*label = '?';
	}
}

size_t threads_count(const struct threads *threads)
{
	return threads->count;
}

const char *threads_label(const struct threads *threads, uint32_t number)
{
	if (!number || number > THREAD_NAMES_MAX || !*threads->labels[number])
		return "(other)";
	return threads->labels[number];
}
