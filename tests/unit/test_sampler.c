/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel side's sampler, compiled here: tables against libm, and unbiasedness by simulation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "probe/sampling.h"
#include "sampler.bpf.h"

static struct sampling_tables tables;

/* splitmix64: the tests' own stream, from a fixed seed. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void gap_is_the_logarithm(void **state)
{
	static const uint64_t means[] = {2, 1000, 524288, 1 << 30, SAMPLE_BYTES_MAX - 1};
	uint64_t seed = 1;

	for (size_t m = 0; m < sizeof(means) / sizeof(means[0]); m++) {
		sampling_tables_fill(&tables, means[m]);
		for (int i = 0; i < 20000; i++) {
			/* All magnitudes of u, also the smallest. */
			uint64_t random = next_random(&seed) >> (i % 64);
			double expected = -log(ldexp((double)(random | 1), -64)) * means[m];
			double gap = sampler_gap(&tables, random);

			assert_true(fabs(gap - expected) <= 1 + expected * 1e-6 + means[m] * 1e-6);
		}
	}
	assert_true(sampler_gap(&tables, UINT64_MAX) < means[4] / 1000000 + 2);
}

static void weight_is_the_inverse_chance(void **state)
{
	static const uint64_t means[] = {16, 1000, 65536, 524288, 1 << 30};

	for (size_t m = 0; m < sizeof(means) / sizeof(means[0]); m++) {
		sampling_tables_fill(&tables, means[m]);
		for (double size = 1; size < means[m] * 40.0; size = floor(size * 1.13 + 1)) {
			double chance = -expm1(-size / means[m]);
			struct weight weight;

			sampler_weight(&tables, size, &weight);
			assert_true(fabs(ldexp((double)weight.bytes, -WEIGHT_BYTES_SHIFT) -
					 size / chance) <= 1.0 / 256 + size / chance * 2e-5);
			assert_true(fabs(ldexp((double)weight.objects, -WEIGHT_OBJECTS_SHIFT) -
					 1 / chance) <= 1.0 / 65536 + 1 / chance * 3e-4);
			/* (s/p)^2 (1-p) in units of R^2 */
			assert_true(fabs(ldexp((double)weight.variance, -WEIGHT_VARIANCE_SHIFT) -
					 pow(size / chance / means[m], 2) * (1 - chance)) < 1e-4);
		}
	}
}

static void weight_of_size_0_is_objects_only(void **state)
{
	struct weight weight, one;

	sampling_tables_fill(&tables, 524288);
	sampler_weight(&tables, 0, &weight);
	sampler_weight(&tables, 1, &one);
	assert_int_equal(weight.bytes, 0);
	assert_int_equal(weight.objects, one.objects);
}

static void exact_mode_weighs_one(void **state)
{
	struct weight weight;

	sampling_tables_fill(&tables, 1);
	sampler_weight(&tables, 12345, &weight);
	assert_int_equal(weight.bytes, 12345 << WEIGHT_BYTES_SHIFT);
	assert_int_equal(weight.objects, 1 << WEIGHT_OBJECTS_SHIFT);
	assert_int_equal(weight.variance, 0);
}

static void large_blocks_are_exact(void **state)
{
	struct weight weight;

	sampling_tables_fill(&tables, 524288);
	sampler_weight(&tables, 1ull << 30, &weight);
	assert_int_equal(weight.bytes, (1ull << 30) << WEIGHT_BYTES_SHIFT);
	assert_int_equal(weight.objects, 1 << WEIGHT_OBJECTS_SHIFT);
}

/*
 * Sums of weights against the truth, within five sigma of the sampling model; and where there are
 * samples enough to tell, the variance that the weights state against the model's.
 */
static void estimate(uint64_t size, int count, uint64_t seed)
{
	double chance = -expm1(-(double)size / tables.sample_bytes);
	double model = count * (1 - chance) / chance * size * size;
	double bytes = 0, objects = 0, variance = 0, sigma = sqrt(model);
	__u64 left = sampler_gap(&tables, next_random(&seed));
	struct weight weight;

	for (int i = 0; i < count; i++) {
		if (!sampler_advance(&tables, &left, size, next_random(&seed)))
			continue;
		sampler_weight(&tables, size, &weight);
		bytes += ldexp((double)weight.bytes, -WEIGHT_BYTES_SHIFT);
		objects += ldexp((double)weight.objects, -WEIGHT_OBJECTS_SHIFT);
		variance += ldexp((double)weight.variance, -WEIGHT_VARIANCE_SHIFT);
	}
	variance *= (double)tables.sample_bytes * tables.sample_bytes;
	assert_true(fabs(bytes - (double)size * count) <= 5 * sigma + size * count * 1e-4 + 1);
	assert_true(fabs(objects - count) <= 5 * sigma / size + count * 1e-3 + 1);
	if (count * chance > 1000)
		assert_true(variance > 0.8 * model - 1 && variance < 1.2 * model + 1);
}

static void sums_are_unbiased(void **state)
{
	static const uint64_t sizes[] = {1, 8, 100, 4096, 100000, 524288, 3000000};

	sampling_tables_fill(&tables, 65536);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (uint64_t seed = 1; seed <= 20; seed++)
			estimate(sizes[i], 100000, seed * 7919 + i);
	}
}

/* Whatever is asked for, and fails: the next sample is drawn anew, and not pushed out of reach. */
static void absurd_sizes(void **state)
{
	static const uint64_t sizes[] = {1ull << 47, 1ull << 62, 1ull << 63, 3ull << 62,
					 UINT64_MAX};
	uint64_t seed = 1;
	__u64 left;

	sampling_tables_fill(&tables, 65536);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		left = sampler_gap(&tables, next_random(&seed));
		assert_int_equal(sampler_advance(&tables, &left, sizes[i], next_random(&seed)), 1);
		assert_true(left < 45 * tables.sample_bytes);
	}
}

static double bytes_of(const struct weight *weight)
{
	return ldexp((double)weight->bytes, -WEIGHT_BYTES_SHIFT);
}

static double objects_of(const struct weight *weight)
{
	return ldexp((double)weight->objects, -WEIGHT_OBJECTS_SHIFT);
}

static double variance_of(const struct weight *weight)
{
	return ldexp((double)weight->variance, -WEIGHT_VARIANCE_SHIFT);
}

/* An allocator's own distance instead of the session's. */
static void another_distance(void **state)
{
	struct weight own, other;

	sampling_tables_fill(&tables, 65536);
	sampler_weight(&tables, 3000, &own);
	sampling_tables_fill(&tables, 1000);
	sampler_weight_of(&tables, 65536, 3000, &other);
	assert_memory_equal(&own, &other, sizeof(own));
	/* In units of 1000^2. */
	assert_true(fabs(ldexp((double)sampler_variance(&tables, 2000, 1 << 24), -24) - 4) < 1e-3);
	assert_int_equal(sampler_variance(&tables, 1000, 12345), 12345);
	/* More than fits is the most that fits. */
	assert_int_equal(sampler_variance(&tables, SAMPLE_BYTES_MAX, 1 << 24), UINT32_MAX);
}

static void told_weights(void **state)
{
	struct weight weight;

	sampling_tables_fill(&tables, 1000);
	sampler_weight_told(&tables, 100, 5000, &weight);
	assert_true(bytes_of(&weight) == 5000 && objects_of(&weight) == 50);
	/* (s/p)^2 (1-p), p = 100/5000 */
	assert_true(fabs(variance_of(&weight) - 5.0 * 4.9) < 0.01);
	sampler_weight_told(&tables, 4096, 4096, &weight);
	assert_true(bytes_of(&weight) == 4096 && objects_of(&weight) == 1);
	assert_int_equal(weight.variance, 0);
	sampler_weight_told(&tables, 0, 0, &weight);
	assert_true(bytes_of(&weight) == 0 && objects_of(&weight) == 1);
	sampler_weight_told(&tables, 1, 1ull << 46, &weight);
	assert_true(bytes_of(&weight) == ldexp(1, 46) && objects_of(&weight) == ldexp(1, 46));
	assert_int_equal(weight.variance, UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gap_is_the_logarithm),
		cmocka_unit_test(weight_is_the_inverse_chance),
		cmocka_unit_test(weight_of_size_0_is_objects_only),
		cmocka_unit_test(exact_mode_weighs_one),
		cmocka_unit_test(large_blocks_are_exact),
		cmocka_unit_test(sums_are_unbiased),
		cmocka_unit_test(absurd_sizes),
		cmocka_unit_test(another_distance),
		cmocka_unit_test(told_weights),
	};

	return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
