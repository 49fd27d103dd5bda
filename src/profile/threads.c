/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/threads.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/printable.h"

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
	utf8_repair(label, strlen(label));
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
