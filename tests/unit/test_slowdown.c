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

/* Ten seconds of one CPU at 100,000 allocations per second, which take 2 microseconds each. */
static const struct slowdown_samples recorded = {
	.duration_ns = 10000000000,
	.cpu_ns = 10000000000,
	.allocations = 1000000,
	.picked = 200,
	.sample_bytes = 512 << 10,
};

static void test_recorded(void **state)
{
	struct slowdown s, least;

	assert_true(slowdown_from_samples(&recorded, &cost, ATTACH_SESSION, &s, &least));
	assert_near(s.counting_ns, 2e9, 1);
	/* The samples' cost is in the CPU time, too: what remains is the process's own. */
	assert_near(s.overhead_ns, 2e9 + 200 * 2600, 1);
	assert_near(s.slowdown, s.overhead_ns / (1e10 - s.overhead_ns), 1e-9);
	assert_near(s.cpu_share, 0.2, 1e-3);
	/* 1,000,000 - 2 sqrt(1,000,000 * 32768) */
	assert_near(least.counting_ns, 2000 * 637961.0, 2000);
	assert_true(least.slowdown < s.slowdown);
	assert_true(slowdown_exceeds(&s, 0.2) && !slowdown_exceeds(&s, 0.3));
	assert_false(slowdown_is_sampling(&s));
}

static void test_recorded_returns(void **state)
{
	struct slowdown s, least;

	assert_true(slowdown_from_samples(&recorded, &cost, ATTACH_MULTI, &s, &least));
	assert_near(s.overhead_ns, 2e9 + 1000000 * 500.0 + 200 * 2100, 1);
}

static void test_recorded_stepped(void **state)
{
	struct slowdown_samples samples = recorded;
	struct slowdown s, least;

	samples.allocations = 100000;
	samples.stepped_share = 0.5;
	assert_true(slowdown_from_samples(&samples, &cost, ATTACH_SESSION, &s, &least));
	assert_near(s.counting_ns, 100000 * 1000.0 + 100000 * 10000.0, 20000);
}

/* Every allocation is a sample: no doubt about how many they are. */
static void test_recorded_exact(void **state)
{
	struct slowdown_samples samples = recorded;
	struct slowdown s, least;

	samples.sample_bytes = 1;
	samples.picked = samples.allocations;
	assert_true(slowdown_from_samples(&samples, &cost, ATTACH_SESSION, &s, &least));
	assert_near(s.overhead_ns, 1000000 * 4600.0, 1);
	assert_near(least.overhead_ns, s.overhead_ns, 1e3);
	assert_true(slowdown_is_sampling(&s));
}

/* One sample of a small block among some of large ones proves nothing. */
static void test_recorded_few(void **state)
{
	struct slowdown_samples samples = recorded;
	struct slowdown s, least;

	samples.picked = 9;
	assert_false(slowdown_from_samples(&samples, &cost, ATTACH_SESSION, &s, &least));
	samples.picked = 30;
	samples.allocations = 32768 + 29;
	assert_true(slowdown_from_samples(&samples, &cost, ATTACH_SESSION, &s, &least));
	assert_near(least.counting_ns, 30 * 2000.0, 1);
	samples.duration_ns = 0;
	assert_false(slowdown_from_samples(&samples, &cost, ATTACH_SESSION, &s, &least));
}

/* Twice the time for the same work, but nobody would notice. */
static void test_recorded_idle(void **state)
{
	struct slowdown_samples samples = recorded;
	struct slowdown s, least;

	samples.allocations = 30000;
	samples.cpu_ns = 100000000;
	assert_true(slowdown_from_samples(&samples, &cost, ATTACH_SESSION, &s, &least));
	assert_true(s.slowdown > 1);
	assert_false(slowdown_exceeds(&s, 0.5));
}

static void test_words(void **state)
{
	char text[SLOWDOWN_WORDS];
	unsigned int higher;

	slowdown_words(&(struct slowdown){.slowdown = 0.8}, text, &higher);
	assert_string_equal(text, "about 80 %");
	assert_int_equal(higher, 200);
	slowdown_words(&(struct slowdown){.slowdown = 2.4}, text, &higher);
	assert_string_equal(text, "about 240 % or more");
	assert_int_equal(higher, 500);
	slowdown_words(&(struct slowdown){.slowdown = 100000}, text, &higher);
	assert_string_equal(text, "more than 1000 %");
	assert_int_equal(higher, 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_returns),
		cmocka_unit_test(test_stepped),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_recorded),
		cmocka_unit_test(test_recorded_returns),
		cmocka_unit_test(test_recorded_stepped),
		cmocka_unit_test(test_recorded_exact),
		cmocka_unit_test(test_recorded_few),
		cmocka_unit_test(test_recorded_idle),
		cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
