/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What becomes of the sites of processes that have ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "profile/heap.h"

static int no_chunk(void *arg, uint64_t id, struct stack_chunk *ret)
{
	return -2; /* ENOENT: the stack is lost */
}

static struct heap *filled(void)
{
	struct heap *heap;

	assert_int_equal(heap_new(no_chunk, NULL, &heap), 0);
	/* Serials 1 to 4, two stacks each. */
	for (uint32_t serial = 1; serial <= 4; serial++) {
		for (uint64_t stack = 10; stack <= 11; stack++) {
			const struct site_key key = {
				.epoch = 1, .serial = serial, .stack_id = stack};
			struct site_counters counters = {};

			counters.alloc.bytes = 100 * serial + stack;
			counters.alloc.objects = 10;
			counters.freed.bytes = stack;
			counters.freed.objects = 1;
			assert_int_equal(heap_add(heap, &key, &counters), 0);
		}
	}
	return heap;
}

static const struct heap_site *site_of(const struct heap *heap, uint32_t serial, uint64_t stack)
{
	for (const struct heap_site *site = heap_sites(heap); site; site = site->hh.next)
		if (site->key.serial == serial && site->key.stack_id == stack)
			return site;
	return NULL;
}

static bool is_two_or_three(void *arg, uint32_t serial)
{
	return serial == 2 || serial == 3;
}

static void test_end(void **state)
{
	struct heap *heap = filled();

	heap_end(heap, is_two_or_three, NULL);
	for (uint32_t serial = 1; serial <= 4; serial++) {
		for (uint64_t stack = 10; stack <= 11; stack++) {
			const struct heap_site *site = site_of(heap, serial, stack);

			assert_non_null(site);
			assert_true(site->alloc.bytes == 100 * serial + stack);
			assert_true(site->freed.bytes ==
				    (is_two_or_three(NULL, serial) ? site->alloc.bytes : stack));
			assert_true(site->freed.objects ==
				    (is_two_or_three(NULL, serial) ? 10 : 1));
		}
	}
	heap_free(heap);
}

static uint32_t into_four_or_nine(void *arg, uint32_t serial)
{
	/* One that is there already, and a new one. */
	return serial == 1 ? 4 : serial == 4 ? 4 : 9;
}

static void test_merge(void **state)
{
	struct heap *heap = filled();
	size_t count = 0;

	assert_int_equal(heap_merge(heap, into_four_or_nine, NULL), 0);
	for (const struct heap_site *site = heap_sites(heap); site; site = site->hh.next)
		count++;
	assert_int_equal(count, 4);
	for (uint64_t stack = 10; stack <= 11; stack++) {
		assert_true(site_of(heap, 4, stack)->alloc.bytes == 500 + 2 * stack);
		assert_true(site_of(heap, 4, stack)->freed.bytes == 2 * stack);
		assert_true(site_of(heap, 9, stack)->alloc.bytes == 500 + 2 * stack);
		assert_true(site_of(heap, 9, stack)->alloc.objects == 20);
	}
	/* Again: nothing changes. */
	assert_int_equal(heap_merge(heap, into_four_or_nine, NULL), 0);
	assert_true(site_of(heap, 9, 10)->alloc.objects == 20);
	heap_free(heap);
}

/* Ids from 100 on are of stacks with raw addresses of the process id / 100. */
static int some_raw(void *arg, uint64_t id, struct stack_chunk *ret)
{
	*ret = (struct stack_chunk){.count = 1, .serial = id / 100, .frames = {id}};
	return 0;
}

static void add_id(void *arg, uint64_t id)
{
	*(uint64_t *)arg += id;
}

static void test_leave_stacks(void **state)
{
	static const uint64_t ids[] = {10, 100, 200, 201, 300, 400};
	struct heap *heap;
	uint64_t sum = 0;

	assert_int_equal(heap_new(some_raw, NULL, &heap), 0);
	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
		const struct site_key key = {.serial = ids[i] / 100 ?: 2, .stack_id = ids[i]};

		assert_int_equal(heap_add(heap, &key, &(struct site_counters){.alloc.bytes = 1}),
				 0);
	}
	heap_leave_stacks(heap, is_two_or_three, NULL, add_id, &sum);
	assert_int_equal(sum, 200 + 201 + 300);
	heap_leave_stacks(heap, is_two_or_three, NULL, add_id, &sum);
	assert_int_equal(sum, 200 + 201 + 300);
	heap_free(heap);
}

/* Serials 1 and 3 have one part, 2 another, 4 none. */
static size_t part_of(void *arg, uint32_t serial)
{
	*(size_t *)arg += 1;
	return serial == 4 ? 3 : serial == 2;
}

static void test_divide(void **state)
{
	static const uint32_t serials[] = {1, 3, 2};
	struct heap *heap = filled(), *copy;
	size_t asked = 0;

	assert_int_equal(heap_copy(heap, &copy), 0);
	assert_int_equal(heap_divide(copy, 3, part_of, &asked), 0);
	assert_int_equal(asked, heap_site_count(heap));
	assert_int_equal(heap_site_count(copy), 0);
	assert_int_equal(heap_site_count(heap_part(copy, 0)), 4);
	assert_int_equal(heap_site_count(heap_part(copy, 1)), 2);
	assert_int_equal(heap_site_count(heap_part(copy, 2)), 0);
	for (size_t i = 0; i < 3; i++) {
		const struct heap *part = heap_part(copy, serials[i] == 2);

		assert_true(site_of(part, serials[i], 10)->alloc.bytes == 100 * serials[i] + 10);
		assert_true(site_of(part, serials[i], 11)->alloc.bytes == 100 * serials[i] + 11);
	}
	heap_free(copy);
	heap_free(heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_leave_stacks),
		cmocka_unit_test(test_divide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
