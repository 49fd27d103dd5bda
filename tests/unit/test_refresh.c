/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* refresh: whose JIT code is looked at anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "refresh.h"

#define PROCESSES 300

/* A stack of one raw frame; its id is the serial of the process, or 0. */
static int read_chunk(void *arg, uint64_t id, struct stack_chunk *ret)
{
	*ret = (struct stack_chunk){.count = 1, .serial = (uint32_t)id, .frames = {FRAME_RAW | id}};
	return 0;
}

static struct snapshot_process processes[PROCESSES];

/* Serial n + 1 is PID 1000 + n. */
static int setup(void **state)
{
	struct heap *heap;

	for (size_t i = 0; i < PROCESSES; i++)
		processes[i] = (struct snapshot_process){.serial = i + 1, .pid = 1000 + (pid_t)i};
	if (heap_new(read_chunk, NULL, &heap))
		return -1;
	*state = heap;
	return 0;
}

static int teardown(void **state)
{
	heap_free(*state);
	return 0;
}

static void add_raw(struct heap *heap, uint32_t serial)
{
	const struct site_key key = {.serial = serial, .stack_id = serial};
	const struct site_counters counters = {.alloc.bytes = 1};

	assert_int_equal(heap_add(heap, &key, &counters), 0);
}

static int choose(struct refresh *refresh, const struct heap *heap, size_t count,
		  pid_t pids[REFRESH_MAX])
{
	return refresh_choose(refresh,
			      &(struct snapshot_input){
				      .heap = heap,
				      .processes = processes,
				      .process_count = count,
			      },
			      pids);
}

static void test_raw_first(void **state)
{
	struct refresh refresh = {};
	pid_t pids[REFRESH_MAX];

	add_raw(*state, 299);
	add_raw(*state, 200);
	add_raw(*state, 100);
	processes[199].left = true;
	processes[0].left = true;
	for (int round = 0; round < 3; round++) {
		assert_int_equal(choose(&refresh, *state, PROCESSES, pids), REFRESH_MAX);
		/* Each time, and what has ended after what runs. */
		assert_int_equal(pids[0] + pids[1], 1099 + 1298);
		assert_int_equal(pids[2], 1199);
		for (int i = 3; i < REFRESH_MAX; i++)
			assert_int_not_equal(pids[i], 1000);
	}
}

static void test_turns(void **state)
{
	struct refresh refresh = {};
	pid_t pids[REFRESH_MAX];
	int seen[PROCESSES] = {};

	for (uint32_t serial = 1; serial <= 3 * REFRESH_MAX; serial++)
		add_raw(*state, serial);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(choose(&refresh, *state, PROCESSES, pids), REFRESH_MAX);
		for (int i = 0; i < REFRESH_MAX; i++)
			seen[pids[i] - 1000]++;
	}
	for (int i = 0; i < PROCESSES; i++)
		assert_int_equal(seen[i], i < 3 * REFRESH_MAX);
}

static void test_silent(void **state)
{
	struct refresh refresh = {};
	pid_t pids[REFRESH_MAX], again[REFRESH_MAX];

	add_raw(*state, 100);
	assert_int_equal(choose(&refresh, *state, PROCESSES, pids), REFRESH_MAX);
	assert_int_equal(choose(&refresh, *state, PROCESSES, again), REFRESH_MAX);
	assert_memory_equal(pids, again, sizeof(pids));
}

static void test_few(void **state)
{
	struct refresh refresh = {};
	pid_t pids[REFRESH_MAX];

	assert_int_equal(choose(&refresh, *state, 0, pids), 0);
	/* It has executed twice. */
	processes[1].pid = processes[2].pid = 1000;
	processes[3].pid = 0;
	add_raw(*state, 2);
	assert_int_equal(choose(&refresh, *state, 5, pids), 2);
	assert_int_equal(pids[0], 1000);
	assert_int_equal(pids[1], 1004);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_raw_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_few, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
