/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whom the links reach, and what is said of those that they reach late. The kernel side, the links
 * and the list of processes are made up here: those of the library are not linked then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "scope_links.h"
#include "util/clock.h"

#define MAX_PROCESSES 128
#define MS	      1000000ull

/* Of the list, by index. */
static struct snapshot_process list[MAX_PROCESSES];
static struct process_life lives[MAX_PROCESSES];
static bool taken[MAX_PROCESSES];
static size_t count;

static pid_t linked[MAX_PROCESSES]; /* in the order in which they were */
static size_t linked_count;
static int link_error; /* of the next ones */

bool kernel_has_process(const struct kernel *kernel, pid_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].pid == pid && !lives[i].gone_ns)
			return true;
	return false;
}

void kernel_set_generation(struct kernel *kernel, unsigned int generation)
{
}

int kernel_read_calls(const struct kernel *kernel, struct call_counts *ret)
{
	*ret = (struct call_counts){};
	return 0;
}

int attach_add(struct attach *attach, pid_t pid)
{
	if (!link_error)
		linked[linked_count++] = pid;
	return link_error;
}

void attach_remove(struct attach *attach, pid_t pid)
{
}

int attach_replace(struct attach *attach, const pid_t *pids, size_t pid_count,
		   unsigned int *ret_generation)
{
	*ret_generation = 1;
	return 0;
}

void attach_settle(struct attach *attach)
{
}

int processes_update(struct processes *processes)
{
	return 0;
}

const struct snapshot_process *processes_list(const struct processes *processes, size_t *ret_count)
{
	*ret_count = count;
	return list;
}

struct process_life processes_life(const struct processes *processes, size_t index)
{
	return lives[index];
}

bool processes_is_new(const struct processes *processes, size_t index)
{
	return !taken[index];
}

void processes_take(struct processes *processes, size_t index)
{
	taken[index] = true;
}

/* ------------------------------------------------------------------ the tests' words */

static int setup(void **state)
{
	count = linked_count = 0;
	link_error = 0;
	memset(taken, 0, sizeof(taken));
	memset(lives, 0, sizeof(lives));
	return 0;
}

static struct scope_links *links_new(enum scope_reach reach, size_t max)
{
	struct scope_links *links;

	assert_int_equal(
		scope_links_new(&(struct scope_links_context){.reach = reach, .max = max}, &links),
		0);
	return links;
}

/* A serial that came so long ago. Returns its index. */
static size_t comes(pid_t pid, uint64_t ago_ns)
{
	list[count] = (struct snapshot_process){.serial = count + 1, .pid = pid};
	lives[count].start_ns = clock_ns(CLOCK_MONOTONIC) - ago_ns;
	return count++;
}

static void goes(size_t index, uint64_t after_ns, bool executed)
{
	lives[index].gone_ns = lives[index].start_ns + after_ns;
	lives[index].executed = executed;
}

static struct scope_links_late update(struct scope_links *links)
{
	assert_int_equal(scope_links_update(links), 0);
	return scope_links_late(links);
}

static void test_fork_and_exec(void **state)
{
	struct scope_links *links CLEANUP(scope_links) = links_new(REACH_EACH, 8);
	struct scope_links_late late;

	/* It has executed after one of 50 ms, and is reached only now. */
	goes(comes(10, 50 * MS), 1 * MS, true);
	comes(10, 49 * MS);
	late = update(links);
	assert_int_equal(linked_count, 1);
	assert_int_equal(late.count, 1);
	assert_int_equal(late.ended, 0);
	assert_true(late.longest_ns >= 50 * MS && late.longest_ns < 1000 * MS);
}

static void test_ended(void **state)
{
	struct scope_links *links CLEANUP(scope_links) = links_new(REACH_EACH, 8);
	struct scope_links_late late;

	goes(comes(10, 50 * MS), 1 * MS, true);
	goes(comes(10, 49 * MS), 20 * MS, false);
	late = update(links);
	assert_int_equal(linked_count, 0);
	assert_int_equal(late.count, 1);
	assert_int_equal(late.ended, 1);
	assert_int_equal(late.longest_ns / MS, 21);
	/* What it began as may be seen before what it has become. */
	goes(comes(11, 90 * MS), 1 * MS, true);
	late = update(links);
	assert_int_equal(late.count, 1);
	goes(comes(11, 89 * MS), 40 * MS, false);
	late = update(links);
	assert_int_equal(late.count, 2);
	assert_int_equal(late.ended, 2);
	assert_int_equal(late.longest_ns / MS, 41);
}

static void test_reached_before_it_executes(void **state)
{
	struct scope_links *links CLEANUP(scope_links) = links_new(REACH_EACH, 8);
	size_t forked = comes(10, 5 * MS);
	struct scope_links_late late = update(links);

	assert_int_equal(late.count, 1);
	goes(forked, 6 * MS, true);
	goes(comes(10, 0), 1 * MS, false);
	late = update(links);
	assert_int_equal(late.count, 1);
	assert_int_equal(late.ended, 0);
}

static void test_no_room(void **state)
{
	struct scope_links *links CLEANUP(scope_links) = links_new(REACH_EACH, 2);
	struct scope_links_late late;

	for (pid_t pid = 10; pid < 14; pid++)
		comes(pid, 5 * MS);
	late = update(links);
	assert_int_equal(late.count, 2);
	assert_int_equal(late.ended, 0);
	assert_int_equal(late.refused, 2);
	/* Again: the same two. */
	late = update(links);
	assert_int_equal(late.count, 2);
	assert_int_equal(late.refused, 2);
	/* One has executed, and still waits. */
	goes(2, 6 * MS, true);
	comes(12, 0);
	late = update(links);
	assert_int_equal(late.refused, 2);
	/* One that ends makes room for one of them; the other ends, too. */
	goes(0, 10 * MS, false);
	late = update(links);
	assert_int_equal(late.count, 3);
	assert_int_equal(late.refused, 1);
	assert_int_equal(linked_count, 3);
	assert_int_equal(linked[2], 13);
	goes(4, 1 * MS, false);
	late = update(links);
	assert_int_equal(late.count, 4);
	assert_int_equal(late.ended, 1);
	assert_int_equal(late.refused, 0);
}

static void test_error(void **state)
{
	struct scope_links *links CLEANUP(scope_links) = links_new(REACH_EACH, 8);
	struct scope_links_late late;

	link_error = -EMFILE;
	comes(10, 5 * MS);
	late = update(links);
	assert_int_equal(late.count, 0);
	assert_int_equal(late.ended, 0);
	assert_int_equal(late.refused, 1);
	assert_int_equal(update(links).refused, 1);
}

#define CALLS(n) ((__u64)(n) << WEIGHT_OBJECTS_SHIFT)

static void test_outnumbered(void **state)
{
	struct call_counts counts = {
		.inside = CALLS(100000),
		.outside = CALLS(100001),
		.picked_inside = 50,
		.picked_outside = 50,
	};
	const uint64_t second = 1000000000;

	assert_true(scope_links_outnumbered(&counts, second));
	/* Too few a second to matter. */
	assert_false(scope_links_outnumbered(&counts, 11 * second));
	/* Too few samples to tell. */
	counts.picked_inside = counts.picked_outside = 15;
	assert_false(scope_links_outnumbered(&counts, second));
	counts.picked_outside = 50;
	counts.inside = counts.outside;
	assert_false(scope_links_outnumbered(&counts, second));
	/* An idle scope. */
	counts.inside = 0;
	assert_true(scope_links_outnumbered(&counts, second));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_fork_and_exec, setup),
		cmocka_unit_test_setup(test_ended, setup),
		cmocka_unit_test_setup(test_reached_before_it_executes, setup),
		cmocka_unit_test_setup(test_no_room, setup),
		cmocka_unit_test_setup(test_error, setup),
		cmocka_unit_test(test_outnumbered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
