/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* slowdown: what is expected of counted calls. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "slowdown.h"

static void assert_near(double value, double wanted, double error)
{
	if (!(value >= wanted - error && value <= wanted + error))
		fail_msg("%f is not %f", value, wanted);
}

static const struct trap_cost cost = {.emulated = 1000, .stepped = 10000, .at_return = 500};

/* A second of one CPU, of which traps take a fifth. */
static const struct slowdown_rates busy = {
	.duration_ns = 1000000000,
	.cpu_ns = 1000000000,
	.emulated = 200000,
	.allocations = 100000,
	.frees = 100000,
	.returning = 100000,
	.bytes = 100 << 20,
	.samples = 200,
};

static void test_default(void **state)
{
	struct slowdown s = slowdown_estimate(&busy, &cost, ATTACH_SESSION, false);

	/* 200 samples at 500 + 2.1 * 1000. */
	assert_near(s.counting_ns, 2e8, 1);
	assert_near(s.overhead_ns, 2e8 + 200 * 2600, 1);
	assert_near(s.traps_per_s, 200200, 1e-6);
	assert_near(s.cpu_share, s.overhead_ns / 1e9, 1e-9);
	assert_near(s.slowdown, s.overhead_ns / 8e8, 1e-9);
}

static void test_exact(void **state)
{
	struct slowdown s = slowdown_estimate(&busy, &cost, ATTACH_SESSION, true);

	assert_near(s.overhead_ns, 2e8 + 100000 * 2600.0, 1);
	assert_near(s.traps_per_s, 300000, 1e-6);
}

/* Without sessions all allocations trap at their return. */
static void test_returns(void **state)
{
	for (enum attach_mode mode = ATTACH_MULTI; mode <= ATTACH_PERF; mode++) {
		struct slowdown s = slowdown_estimate(&busy, &cost, mode, false);

		assert_near(s.overhead_ns, 2e8 + 100000 * 500.0 + 200 * 2100, 1);
		assert_near(s.traps_per_s, 300000, 1e-6);
		assert_near(slowdown_estimate(&busy, &cost, mode, true).overhead_ns,
			    2e8 + 100000 * 2600.0, 1);
	}
}

static void test_stepped(void **state)
{
	struct slowdown_rates rates = busy;
	struct slowdown s;

	rates.emulated = 0;
	rates.stepped = 50000;
	s = slowdown_estimate(&rates, &cost, ATTACH_SESSION, false);
	assert_near(s.counting_ns, 5e8, 1);
	assert_near(s.slowdown, s.overhead_ns / 5e8, 1e-9);
}

static void test_idle(void **state)
{
	struct slowdown_rates rates = {};
	struct slowdown s = slowdown_estimate(&rates, &cost, ATTACH_SESSION, true);

	assert_near(s.slowdown, 0, 0);
	rates.duration_ns = 1000000000;
	s = slowdown_estimate(&rates, &cost, ATTACH_SESSION, true);
	assert_near(s.slowdown, 0, 0);
	assert_near(s.cpu_share, 0, 0);
}

/* Traps that seem to take more than all there was: a large number, but one. */
static void test_bounds(void **state)
{
	struct slowdown_rates rates = busy;
	struct slowdown s;

	rates.cpu_ns = 150000000;
	s = slowdown_estimate(&rates, &cost, ATTACH_SESSION, false);
	assert_true(s.slowdown > 10 && s.slowdown < 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default), cmocka_unit_test(test_exact),
		cmocka_unit_test(test_returns), cmocka_unit_test(test_stepped),
		cmocka_unit_test(test_idle),	cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
