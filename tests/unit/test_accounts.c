/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sample types by account, and that a site has values for its own alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "heaptap/weight.h"
#include "profile/accounts.h"
#include "profile/address_space.h"

static int no_chunk(void *arg, uint64_t id, struct stack_chunk *ret)
{
	return -1;
}

static const char *type_name(const struct profile *profile, size_t index)
{
	return profile->strings[profile->sample_types[index].type];
}

static const char *unit_name(const struct profile *profile, size_t index)
{
	return profile->strings[profile->sample_types[index].unit];
}

static void test_types(void **state)
{
	struct profile *profile;

	assert_int_equal(profile_new(&profile), 0);
	accounts_add_types(profile, ACCOUNT_BIT(ACCOUNT_MALLOC) | ACCOUNT_BIT(ACCOUNT_MAPPED));
	assert_int_equal(profile->sample_type_count, 9);
	assert_string_equal(type_name(profile, 0), "alloc_objects");
	assert_string_equal(unit_name(profile, 0), "count");
	assert_string_equal(type_name(profile, 3), "inuse_space");
	assert_string_equal(unit_name(profile, 3), "bytes");
	assert_string_equal(type_name(profile, 4), "map_objects");
	assert_string_equal(type_name(profile, 8), "reserved_space");
	assert_string_equal(profile->strings[profile->default_sample_type], "inuse_space");
	profile_free(profile);

	assert_int_equal(profile_new(&profile), 0);
	accounts_add_types(profile, ACCOUNT_BIT(ACCOUNT_MAPPED));
	assert_int_equal(profile->sample_type_count, 5);
	assert_string_equal(profile->strings[profile->default_sample_type], "mapped_space");
	profile_free(profile);

	assert_int_equal(profile_new(&profile), 0);
	accounts_add_types(profile, UINT32_MAX);
	assert_true(profile->sample_type_count <= ACCOUNTS_MAX_VALUES);
	profile_free(profile);
}

/* One site, whose counters are in bytes and objects. */
static const struct heap_site *site_of(struct heap *heap, enum account account, uint64_t bytes,
				       uint64_t freed, int64_t reserved)
{
	const struct site_key key = {.account = account, .serial = 1, .stack_id = account + 1};
	/* Unmapped twice, and once of it taken back. */
	const struct mapped_change changes[] = {
		{.mapped = bytes,
		 .unmapped = 2 * freed,
		 .mapped_objects = 2,
		 .unmapped_objects = 2},
		{.unmapped = -freed, .unmapped_objects = -1, .reserved = reserved},
	};
	const struct site_counters counters = {
		.alloc = {.bytes = bytes << WEIGHT_BYTES_SHIFT,
			  .objects = 2ull << WEIGHT_OBJECTS_SHIFT},
		.freed = {.bytes = freed << WEIGHT_BYTES_SHIFT,
			  .objects = 1ull << WEIGHT_OBJECTS_SHIFT},
	};
	const struct heap_site *site;

	if (account == ACCOUNT_MAPPED)
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(heap_add_mapped(heap, &key, &changes[i]), 0);
	else
		assert_int_equal(heap_add(heap, &key, &counters), 0);
	for (site = heap_sites(heap); site; site = site->hh.next)
		if (site->key.account == account)
			return site;
	return NULL;
}

static void test_values(void **state)
{
	const uint32_t both = ACCOUNT_BIT(ACCOUNT_MALLOC) | ACCOUNT_BIT(ACCOUNT_MAPPED);
	const int64_t malloc_values[] = {2, 1000, 1, 700, 0, 0, 0, 0, 0};
	const int64_t mapped_values[] = {0, 0, 0, 0, 2, 8192, 1, 4096, 512};
	int64_t values[ACCOUNTS_MAX_VALUES];
	const struct heap_site *site;
	struct heap *heap;

	assert_int_equal(heap_new(no_chunk, NULL, &heap), 0);
	site = site_of(heap, ACCOUNT_MALLOC, 1000, 300, 0);
	assert_true(accounts_values(both, site, values));
	assert_memory_equal(values, malloc_values, sizeof(malloc_values));
	assert_int_equal(accounts_mean_size(site), 500);
	/* It is not asked for. */
	assert_false(accounts_values(ACCOUNT_BIT(ACCOUNT_MAPPED), site, values));
	site = site_of(heap, ACCOUNT_MAPPED, 8192, 4096, 512);
	assert_true(accounts_values(both, site, values));
	assert_memory_equal(values, mapped_values, sizeof(mapped_values));
	heap_free(heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
