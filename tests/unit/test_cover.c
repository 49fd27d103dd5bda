/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* cover: against the definition, on random ranges. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "util/cover.h"

#define RANGES	  40
#define ADDRESSES 64

static bool by_priority(const void *arg, uint32_t a, uint32_t b)
{
	const unsigned int *priorities = arg;

	return priorities[a] != priorities[b] ? priorities[a] > priorities[b] : a < b;
}

static uint32_t slow_find(const struct cover_range *ranges, size_t count, const void *arg,
			  uint64_t address)
{
	uint32_t best = COVER_NONE;

	for (uint32_t i = 0; i < count; i++) {
		if (address >= ranges[i].start && address < ranges[i].end &&
		    (best == COVER_NONE || by_priority(arg, i, best)))
			best = i;
	}
	return best;
}

static int by_start(const void *a, const void *b)
{
	const struct cover_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void test_random(void **state)
{
	unsigned int seed = 1;

	for (int round = 0; round < 2000; round++) {
		struct cover *cover CLEANUP(cover) = NULL;
		struct cover_range ranges[RANGES];
		unsigned int priorities[RANGES];
		size_t count = rand_r(&seed) % RANGES;

		for (size_t i = 0; i < count; i++) {
			ranges[i].start = rand_r(&seed) % ADDRESSES;
			ranges[i].end = ranges[i].start + rand_r(&seed) % 20;
			priorities[i] = rand_r(&seed) % 8;
		}
		qsort(ranges, count, sizeof(ranges[0]), by_start);
		assert_int_equal(cover_build(ranges, count, by_priority, priorities, &cover), 0);
		for (uint64_t address = 0; address < ADDRESSES + 24; address++)
			assert_int_equal(cover_find(cover, address),
					 slow_find(ranges, count, priorities, address));
	}
}

static void test_ends(void **state)
{
	const struct cover_range ranges[] = {
		{0, 1}, {5, 5}, {UINT64_MAX - 1, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}};
	const unsigned int priorities[4] = {};
	struct cover *cover CLEANUP(cover) = NULL;

	assert_int_equal(cover_build(ranges, 4, by_priority, priorities, &cover), 0);
	assert_int_equal(cover_find(cover, 0), 0);
	assert_int_equal(cover_find(cover, 1), COVER_NONE);
	assert_int_equal(cover_find(cover, 5), COVER_NONE);
	assert_int_equal(cover_find(cover, UINT64_MAX - 2), COVER_NONE);
	assert_int_equal(cover_find(cover, UINT64_MAX - 1), 2);
	assert_true(cover_bytes(cover) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_ends),
	};

	return cmocka_run_group_tests_name("cover", tests, NULL, NULL);
}
