/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* epoch: which closes are refused when many closed epochs wait for the loader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "heaptap/epoch.h"

static const __u32 triggers[] = {EPOCH_ALLOC_INTERVAL, EPOCH_FREE_INTERVAL, EPOCH_INUSE_INTERVAL,
				 EPOCH_TIME_INTERVAL};
static const __u32 others[] = {EPOCH_SIGNAL, EPOCH_EXIT, EPOCH_LEFT, EPOCH_DETACH, EPOCH_DRAIN};

static struct epoch_state state;

/* Nothing is drained, and triggers close all they may. Returns how many that were. */
static __u32 fill(__u32 reason)
{
	__u32 count = 0;

	state = (struct epoch_state){.current = 1};
	while (epoch_close_locked(&state, reason, 1000 + count)) {
		count++;
		assert_in_range(count, 1, EPOCH_RECORDS - 1);
	}
	return count;
}

static void the_end_has_room(void **arg)
{
	for (size_t t = 0; t < sizeof(triggers) / sizeof(*triggers); t++) {
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
			__u32 count = fill(triggers[t]), closed;

			/* One of the loader's, and the last process's. */
			closed = epoch_close_locked(&state, others[i], 5);
			assert_int_equal(closed, count + 1);
			assert_int_equal(state.records[closed % EPOCH_RECORDS].reason, others[i]);
			closed = epoch_close_locked(&state, EPOCH_EXIT, 6);
			assert_int_equal(closed, count + 2);
			assert_int_equal(state.records[closed % EPOCH_RECORDS].reason, EPOCH_EXIT);
			/* No record that waits is written over. */
			assert_int_equal(epoch_close_locked(&state, EPOCH_EXIT, 7), 0);
			assert_int_equal(state.current, closed + 1);
			for (__u32 epoch = 1; epoch <= closed; epoch++)
				assert_int_equal(state.records[epoch % EPOCH_RECORDS].epoch, epoch);
		}
	}
}

static void room_comes_back(void **arg)
{
	__u32 count = fill(EPOCH_ALLOC_INTERVAL);

	state.drained = 1;
	assert_int_equal(epoch_close_locked(&state, EPOCH_ALLOC_INTERVAL, 5), count + 1);
	assert_int_equal(epoch_close_locked(&state, EPOCH_ALLOC_INTERVAL, 6), 0);
}

static void a_refused_close_moves_thresholds(void **arg)
{
	fill(EPOCH_ALLOC_INTERVAL);
	state.totals.alloc_bytes = 3000;
	state.totals.freed_bytes = 1000;
	assert_int_equal(epoch_close_locked(&state, EPOCH_ALLOC_INTERVAL, 5), 0);
	assert_int_equal(state.at_last_close.alloc_bytes, 3000);
	assert_int_equal(state.at_last_close.freed_bytes, 1000);
	assert_int_equal(state.high_water, 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_has_room),
		cmocka_unit_test(room_comes_back),
		cmocka_unit_test(a_refused_close_moves_thresholds),
	};

	return cmocka_run_group_tests_name("epoch", tests, NULL, NULL);
}
