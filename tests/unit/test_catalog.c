/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* catalog: names, prefixes and families. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "probe/catalog.h"

static unsigned int family_of(const char *name, const char *prefix)
{
	unsigned int family = UINT32_MAX;

	assert_non_null(catalog_lookup(name, prefix, &family));
	assert_int_not_equal(family, UINT32_MAX);
	return family;
}

static bool knows(const char *name, const char *prefix)
{
	unsigned int family;

	return catalog_lookup(name, prefix, &family);
}

static void test_all_names(void **state)
{
	for (size_t i = 0; i < catalog_function_count; i++) {
		const struct catalog_function *function = &catalog_functions[i];
		unsigned int family;

		assert_ptr_equal(catalog_lookup(function->name, NULL, &family), function);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(catalog_functions[j].name, function->name);
		/* What the kernel side needs of each kind. */
		assert_true((function->kind == PROBE_FREE) == (function->size_arg < 0));
		if (function->kind == PROBE_FREE || function->kind == PROBE_REALLOC ||
		    function->kind == PROBE_REALLOCARRAY || function->kind == PROBE_OUT_ALLOC)
			assert_true(function->ptr_arg >= 0);
		if (function->kind == PROBE_CALLOC || function->kind == PROBE_MEMALIGN)
			assert_true(function->aux_arg >= 0);
	}
}

static void test_prefixes(void **state)
{
	unsigned int family;

	assert_ptr_equal(catalog_lookup("je_malloc", NULL, &family), &catalog_functions[0]);
	assert_true(knows("_rjem_sdallocx", NULL));
	assert_true(knows("tc_calloc", NULL));
	assert_true(knows("mi_realloc", NULL));
	assert_true(knows("rpmalloc", NULL));
	assert_true(knows("scudo_malloc", NULL));
	assert_true(knows("mi_heap_alloc_new_n", NULL));
	assert_true(knows("tcmalloc_size_returning_operator_new_aligned_hot_cold_nothrow", NULL));
	assert_false(knows("je__Znwm", NULL));
	assert_false(knows("my_malloc", NULL));
	assert_true(knows("my_malloc", "my_"));
	assert_false(knows("my_tc_new", "my_"));
	assert_true(knows("malloc", "my_"));
	assert_true(knows("malloc", ""));
	/* A prefix that all of the catalog's names may begin with. */
	assert_true(knows("mmalloc", "m"));
	assert_true(knows("malloc", "m"));
}

static void test_families(void **state)
{
	assert_int_equal(family_of("malloc", NULL), family_of("_ZdlPv", NULL));
	assert_int_equal(family_of("je_malloc", NULL), family_of("je_free", NULL));
	assert_int_not_equal(family_of("je_malloc", NULL), family_of("free", NULL));
	assert_int_equal(family_of("mi_new", NULL), family_of("mi_free", NULL));
	assert_int_equal(family_of("tc_deletearray", NULL), family_of("tc_malloc", NULL));
	assert_int_equal(family_of("rpaligned_zalloc", NULL), family_of("rpfree", NULL));
	assert_int_equal(family_of("sn_rust_alloc", NULL), family_of("sn_free", NULL));
	assert_int_not_equal(family_of("x_malloc", "x_"), family_of("malloc", NULL));
	assert_int_equal(family_of("x_malloc", "x_"), family_of("x_free", "x_"));
}

static void test_other_names(void **state)
{
	static const char *const names[] = {
		"",	   "_",		"_Z",	    "_Zn",	  "_ZnwmX", "mallo",
		"mallocc", "strdup",	"mi_",	    "tc_",	  "freeze", "_ZNSaIcE8allocateEm",
		"xmalloc", "alignment", "__size_t", "reallocate", "je_",    "operator new",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_false(knows(names[i], NULL));
}

static void test_registers(void **state)
{
	static const unsigned int registers[] = {7, 6, 2, 1, 8, 9};

	for (int i = 0; i < 6; i++)
		assert_int_equal(catalog_arg_register(i), registers[i]);
	assert_int_equal(catalog_arg_register(CATALOG_NO_ARG), 0);
	assert_int_equal(catalog_arg_register(6), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_names), cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_families),  cmocka_unit_test(test_other_names),
		cmocka_unit_test(test_registers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
