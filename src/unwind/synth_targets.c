/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where functions without symbols start: what direct calls lead to, and what lea instructions take
 * the address of.
 */
#include <errno.h>
#include <stdlib.h>

#include "elf/reference.h"
#include "unwind/synth.h"

static int add_target(struct synth_targets *targets, uint64_t address)
{
	if (targets->count == targets->capacity) {
		size_t capacity = targets->capacity ? targets->capacity * 2 : 256;
		uint64_t *addresses =
			reallocarray(targets->addresses, capacity, sizeof(*addresses));

		if (!addresses)
			return -ENOMEM;
		targets->addresses = addresses;
		targets->capacity = capacity;
	}
	targets->addresses[targets->count++] = address;
	return 0;
}

int synth_targets_add(struct synth_targets *targets, const uint8_t *bytes, size_t size,
		      uint64_t vaddr)
{
	int err = 0;

	for (size_t at = 0; !err && at < size; at++) {
		struct reference reference;

		if (reference_decode(bytes + at, size - at, vaddr + at, false, &reference))
			err = add_target(targets, reference.to);
	}
	return err;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void synth_targets_sort(struct synth_targets *targets)
{
	size_t kept = 0;

	if (!targets->count)
		return;
	qsort(targets->addresses, targets->count, sizeof(*targets->addresses), compare_addresses);
	for (size_t i = 0; i < targets->count; i++)
		if (!kept || targets->addresses[kept - 1] != targets->addresses[i])
			targets->addresses[kept++] = targets->addresses[i];
	targets->count = kept;
}

void synth_targets_fini(struct synth_targets *targets)
{
	free(targets->addresses);
	*targets = (struct synth_targets){};
}
