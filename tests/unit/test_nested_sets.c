/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* nested_sets: who shares a number, and when there are no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "heaptap/probe.h"
#include "probe/nested_sets.h"

static uint8_t number(struct nested_sets *sets, const uint32_t *offsets, size_t count)
{
	uint8_t ret = 0;

	assert_int_equal(nested_sets_number(sets, offsets, count, &ret), 0);
	return ret;
}

static void test_equal_sets(void **state)
{
	struct nested_sets sets = {};
	const uint8_t none = number(&sets, NULL, 0);
	const uint8_t two = number(&sets, (const uint32_t[]){500, 0x80000000}, 2);
	const uint8_t three = number(&sets, (const uint32_t[]){500, 0x80000000, 7}, 3);

	assert_int_not_equal(none, two);
	assert_int_not_equal(none, three);
	assert_int_not_equal(two, three);
	assert_int_equal(number(&sets, NULL, 0), none);
	assert_int_equal(number(&sets, (const uint32_t[]){0x80000000, 500}, 2), two);
	assert_int_equal(number(&sets, (const uint32_t[]){7, 500, 0x80000000}, 3), three);
	assert_int_not_equal(number(&sets, (const uint32_t[]){500, 0x80000001}, 2), two);
	assert_int_equal(sets.count, 4);
	nested_sets_fini(&sets);
}

static void test_all_numbers(void **state)
{
	struct nested_sets sets = {};
	uint8_t ret;

	/* Each is a number of its own, and what the cookie carries. */
	for (uint32_t i = 0; i < PROBE_MAX_NESTED_SETS; i++) {
		const struct probe_spec spec = {.image = number(&sets, &i, 1)};

		assert_int_equal(probe_spec_of(probe_cookie(&spec)).image, i);
	}
	assert_int_equal(nested_sets_number(&sets, NULL, 0, &ret), -E2BIG);
	/* Those that are known have theirs all the same. */
	assert_int_equal(number(&sets, (const uint32_t[]){200}, 1), 200);
	nested_sets_fini(&sets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_sets),
		cmocka_unit_test(test_all_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
