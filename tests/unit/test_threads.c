/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names of threads, and sites that differ in nothing else. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "profile/heap.h"
#include "profile/threads.h"

/* As the kernel stores it, with zeros up to the end. */
static void add(struct threads *threads, uint32_t number, const char *text)
{
	struct thread_name name = {};

	memcpy(name.text, text, strnlen(text, sizeof(name.text)));
	threads_add(threads, number, &name);
}

static void test_labels(void **state)
{
	struct threads *threads CLEANUP(threads) = NULL;

	assert_int_equal(threads_new(&threads), 0);
	assert_string_equal(threads_label(threads, 1), "(other)");
	add(threads, 1, "main");
	add(threads, THREAD_NAMES_MAX, "last");
	add(threads, 2, "fifteen bytes..");
	add(threads, 3, "");
	assert_int_equal(threads_count(threads), 4);
	assert_string_equal(threads_label(threads, 1), "main");
	assert_string_equal(threads_label(threads, 2), "fifteen bytes..");
	assert_string_equal(threads_label(threads, 3), "(unnamed)");
	assert_string_equal(threads_label(threads, THREAD_NAMES_MAX), "last");
	assert_string_equal(threads_label(threads, 0), "(other)");
	assert_string_equal(threads_label(threads, 4), "(other)");
}

static void test_numbers_without_place(void **state)
{
	struct threads *threads CLEANUP(threads) = NULL;

	assert_int_equal(threads_new(&threads), 0);
	add(threads, 0, "none");
	add(threads, THREAD_NAMES_MAX + 1, "too many");
	add(threads, UINT32_MAX, "too many");
	assert_int_equal(threads_count(threads), 0);
	assert_string_equal(threads_label(threads, 0), "(other)");
	assert_string_equal(threads_label(threads, THREAD_NAMES_MAX + 1), "(other)");
	assert_string_equal(threads_label(threads, UINT32_MAX), "(other)");
	/* A label that was handed out stays as it is. */
	add(threads, 1, "first");
	add(threads, 1, "second");
	assert_string_equal(threads_label(threads, 1), "first");
}

static void test_no_zero_at_the_end(void **state)
{
	struct threads *threads CLEANUP(threads) = NULL;

	assert_int_equal(threads_new(&threads), 0);
	add(threads, 1, "sixteen bytes...");
	assert_string_equal(threads_label(threads, 1), "sixteen bytes..");
}

static void test_utf8(void **state)
{
	static const char *const names[][2] = {
		{"\303\244", "\303\244"},
		{"\342\202\254", "\342\202\254"},
		{"\360\237\230\200", "\360\237\230\200"},
		/* Cut. */
		{"a\303", "a?"},
		{"a\342\202", "a??"},
		{"123456789012345\303", "123456789012345"},
		{"12345678901234\303\244", "12345678901234?"},
		/* No beginning; longer than need be; a surrogate; past the last one. */
		{"\200a", "?a"},
		{"\300\200", "??"},
		{"\340\200\200", "???"},
		{"\355\240\200", "???"},
		{"\360\200\200\200", "????"},
		{"\364\220\200\200", "????"},
		{"\377", "?"},
		{"\303a", "?a"},
	};
	struct threads *threads CLEANUP(threads) = NULL;

	assert_int_equal(threads_new(&threads), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
		add(threads, i + 1, names[i][0]);
		assert_string_equal(threads_label(threads, i + 1), names[i][1]);
	}
}

static int no_chunk(void *arg, uint64_t id, struct stack_chunk *ret)
{
	return -ENOENT;
}

static const struct heap_site *find(const struct heap *heap, uint32_t serial, uint32_t thread)
{
	for (const struct heap_site *site = heap_sites(heap); site; site = site->hh.next)
		if (site->key.serial == serial && site->key.thread == thread)
			return site;
	fail_msg("no site of process %u and thread %u", serial, thread);
	return NULL;
}

static size_t count_sites(const struct heap *heap)
{
	size_t count = 0;

	for (const struct heap_site *site = heap_sites(heap); site; site = site->hh.next)
		count++;
	return count;
}

static void add_site(struct heap *heap, uint32_t serial, uint16_t thread, uint64_t bytes)
{
	struct site_key key = {.epoch = 7, .serial = serial, .thread = thread, .stack_id = 1};
	struct site_counters counters = {.alloc.bytes = bytes, .freed.bytes = 1};

	assert_int_equal(heap_add(heap, &key, &counters), 0);
}

static void test_sites(void **state)
{
	struct heap *heap CLEANUP(heap) = NULL, *copy CLEANUP(heap) = NULL;

	assert_int_equal(heap_new(no_chunk, NULL, &heap), 0);
	add_site(heap, 1, 0, 100);
	add_site(heap, 1, 1, 20);
	add_site(heap, 1, 4096, 3);
	add_site(heap, 1, 1, 20);
	assert_int_equal(heap_copy(heap, &copy), 0);
	assert_int_equal(count_sites(copy), 3);
	assert_true(find(copy, 1, 0)->alloc.bytes == 100);
	assert_true(find(copy, 1, 1)->alloc.bytes == 40);
	assert_true(find(copy, 1, 1)->freed.bytes == 2);
	assert_true(find(copy, 1, 4096)->alloc.bytes == 3);
}

static uint32_t into_nine(void *arg, uint32_t serial)
{
	return 9;
}

static void test_merge(void **state)
{
	struct heap *heap CLEANUP(heap) = NULL;

	assert_int_equal(heap_new(no_chunk, NULL, &heap), 0);
	add_site(heap, 1, 5, 100);
	add_site(heap, 2, 5, 20);
	add_site(heap, 2, 6, 3);
	assert_int_equal(heap_merge(heap, into_nine, NULL), 0);
	assert_int_equal(count_sites(heap), 2);
	assert_true(find(heap, 9, 5)->alloc.bytes == 120);
	assert_true(find(heap, 9, 6)->alloc.bytes == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_numbers_without_place),
		cmocka_unit_test(test_no_zero_at_the_end),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_sites),
		cmocka_unit_test(test_merge),
	};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
