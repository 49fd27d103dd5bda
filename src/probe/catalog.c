/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The allocation functions of the C library, of C++ and of the allocators that replace them.
 *
 * Only signatures are here. How the functions of a build call one another is read from its code
 * (flow.c), so a row may name a function that in some allocators only calls others.
 *
 * Not here: strdup() and its like, which allocate through malloc in every C library.
 */
#include "probe/catalog.h"

#include <string.h>

#include "util/cleanup.h"

#define NONE CATALOG_NO_ARG

/* clang-format off */
#define ALLOC(name, size)		{name, PROBE_ALLOC, size, NONE, NONE, false, false}
#define CALLOC(name, count, size)	{name, PROBE_CALLOC, size, count, NONE, false, false}
#define ALIGNED(name, size, align)	{name, PROBE_MEMALIGN, size, align, NONE, false, false}
#define REALLOC(name, old, size)	{name, PROBE_REALLOC, size, NONE, old, false, false}
#define REALLOCARRAY(name, old, count, size) {name, PROBE_REALLOCARRAY, size, count, old, false, false}
#define FREE(name, old)			{name, PROBE_FREE, NONE, NONE, old, false, false}

/* operator new and delete, for one object and for arrays (Itanium C++ ABI, "Mangling"). */
#define NOTHROW "RKSt9nothrow_t"
#define ALIGN "St11align_val_t"
#define NEW(suffix)	{"_Znwm" suffix, PROBE_ALLOC, 0, NONE, NONE, false, true}, \
			{"_Znam" suffix, PROBE_ALLOC, 0, NONE, NONE, false, true}
#define NEW_ALIGNED(suffix) \
	{"_Znwm" ALIGN suffix, PROBE_MEMALIGN, 0, 1, NONE, false, true}, \
	{"_Znam" ALIGN suffix, PROBE_MEMALIGN, 0, 1, NONE, false, true}
#define NEW_NOTHROW(suffix) \
	ALLOC("_Znwm" NOTHROW suffix, 0), ALLOC("_Znam" NOTHROW suffix, 0)
#define NEW_ALIGNED_NOTHROW(suffix) \
	ALIGNED("_Znwm" ALIGN NOTHROW suffix, 0, 1), ALIGNED("_Znam" ALIGN NOTHROW suffix, 0, 1)
#define THROWING(name)			{name, PROBE_ALLOC, 0, NONE, NONE, false, true}
#define THROWING_ALIGNED(name)		{name, PROBE_MEMALIGN, 0, 1, NONE, false, true}
#define DELETE(suffix)	FREE("_ZdlPv" suffix, 0), FREE("_ZdaPv" suffix, 0)

const struct catalog_function catalog_functions[] = {
	/* name, kind, size, aux, ptr, prefixed, throws */
	{"malloc", PROBE_ALLOC, 0, NONE, NONE, true, false},
	{"free", PROBE_FREE, NONE, NONE, 0, true, false},
	{"calloc", PROBE_CALLOC, 1, 0, NONE, true, false},
	{"realloc", PROBE_REALLOC, 1, NONE, 0, true, false},
	{"memalign", PROBE_MEMALIGN, 1, 0, NONE, true, false},
	{"aligned_alloc", PROBE_MEMALIGN, 1, 0, NONE, true, false},
	{"posix_memalign", PROBE_OUT_ALLOC, 2, 1, 0, true, false},
	{"valloc", PROBE_ALLOC, 0, NONE, NONE, true, false},
	{"pvalloc", PROBE_ALLOC, 0, NONE, NONE, true, false},
	{"cfree", PROBE_FREE, NONE, NONE, 0, true, false},
	{"free_sized", PROBE_FREE, NONE, NONE, 0, true, false},
	{"free_aligned_sized", PROBE_FREE, NONE, NONE, 0, true, false},
	{"reallocarray", PROBE_REALLOCARRAY, 2, 1, 0, true, false},
	{"reallocf", PROBE_REALLOC, 1, NONE, 0, true, false},

	NEW(""), NEW_NOTHROW(""), NEW_ALIGNED(""), NEW_ALIGNED_NOTHROW(""),
	DELETE(""), DELETE("m"), DELETE(NOTHROW),
	DELETE(ALIGN), DELETE("m" ALIGN), DELETE(ALIGN NOTHROW),

	/* google/tcmalloc: hinted and size-returning forms; the block comes first in the result */
	NEW("12__hot_cold_t"), NEW_NOTHROW("12__hot_cold_t"),
	NEW_ALIGNED("12__hot_cold_t"), NEW_ALIGNED_NOTHROW("12__hot_cold_t"),
	THROWING("__size_returning_new"),
	THROWING("__size_returning_new_hot_cold"),
	THROWING_ALIGNED("__size_returning_new_aligned"),
	THROWING_ALIGNED("__size_returning_new_aligned_hot_cold"),
	THROWING("tcmalloc_size_returning_operator_new"),
	THROWING("tcmalloc_size_returning_operator_new_hot_cold"),
	THROWING_ALIGNED("tcmalloc_size_returning_operator_new_aligned"),
	THROWING_ALIGNED("tcmalloc_size_returning_operator_new_aligned_hot_cold"),
	ALLOC("tcmalloc_size_returning_operator_new_nothrow", 0),
	ALLOC("tcmalloc_size_returning_operator_new_hot_cold_nothrow", 0),
	ALIGNED("tcmalloc_size_returning_operator_new_aligned_nothrow", 0, 1),
	ALIGNED("tcmalloc_size_returning_operator_new_aligned_hot_cold_nothrow", 0, 1),

	/* gperftools' own names for operator new and delete */
	THROWING("tc_new"), THROWING("tc_newarray"),
	ALLOC("tc_malloc_skip_new_handler", 0),
	ALLOC("tc_new_nothrow", 0), ALLOC("tc_newarray_nothrow", 0),
	THROWING_ALIGNED("tc_new_aligned"), THROWING_ALIGNED("tc_newarray_aligned"),
	ALIGNED("tc_new_aligned_nothrow", 0, 1), ALIGNED("tc_newarray_aligned_nothrow", 0, 1),
	FREE("tc_delete", 0), FREE("tc_deletearray", 0),
	FREE("tc_delete_nothrow", 0), FREE("tc_deletearray_nothrow", 0),
	FREE("tc_delete_sized", 0), FREE("tc_deletearray_sized", 0),
	FREE("tc_delete_aligned", 0), FREE("tc_deletearray_aligned", 0),
	FREE("tc_delete_sized_aligned", 0), FREE("tc_deletearray_sized_aligned", 0),
	FREE("tc_delete_aligned_nothrow", 0), FREE("tc_deletearray_aligned_nothrow", 0),

	/* jemalloc's non-standard API */
	{"mallocx", PROBE_ALLOC, 0, NONE, NONE, true, false},
	{"rallocx", PROBE_REALLOC, 1, NONE, 0, true, false},
	{"xallocx", PROBE_RESIZE, 1, NONE, 0, true, false},
	{"dallocx", PROBE_FREE, NONE, NONE, 0, true, false},
	{"sdallocx", PROBE_FREE, NONE, NONE, 0, true, false},

	/* mimalloc */
	ALLOC("mi_zalloc", 0), ALLOC("mi_malloc_small", 0), ALLOC("mi_zalloc_small", 0),
	CALLOC("mi_mallocn", 0, 1),
	ALIGNED("mi_malloc_aligned", 0, 1), ALIGNED("mi_malloc_aligned_at", 0, 1),
	ALIGNED("mi_zalloc_aligned", 0, 1), ALIGNED("mi_zalloc_aligned_at", 0, 1),
	CALLOC("mi_calloc_aligned", 0, 1), CALLOC("mi_calloc_aligned_at", 0, 1),
	REALLOCARRAY("mi_reallocn", 0, 1, 2),
	REALLOC("mi_rezalloc", 0, 1), REALLOCARRAY("mi_recalloc", 0, 1, 2),
	REALLOC("mi_realloc_aligned", 0, 1), REALLOC("mi_realloc_aligned_at", 0, 1),
	REALLOC("mi_rezalloc_aligned", 0, 1), REALLOC("mi_rezalloc_aligned_at", 0, 1),
	REALLOCARRAY("mi_recalloc_aligned", 0, 1, 2),
	REALLOCARRAY("mi_recalloc_aligned_at", 0, 1, 2),
	REALLOC("mi_expand", 0, 1),
	THROWING("mi_new"), ALLOC("mi_new_nothrow", 0), {"mi_new_n", PROBE_CALLOC, 1, 0, NONE, false, true},
	THROWING_ALIGNED("mi_new_aligned"), ALIGNED("mi_new_aligned_nothrow", 0, 1),
	{"mi_new_realloc", PROBE_REALLOC, 1, NONE, 0, false, true},
	{"mi_new_reallocn", PROBE_REALLOCARRAY, 2, 1, 0, false, true},
	FREE("mi_free_size", 0), FREE("mi_free_aligned", 0), FREE("mi_free_size_aligned", 0),
	{"mi_heap_alloc_new", PROBE_ALLOC, 1, NONE, NONE, false, true},
	{"mi_heap_alloc_new_n", PROBE_CALLOC, 2, 1, NONE, false, true},
	ALLOC("mi_heap_malloc", 1), ALLOC("mi_heap_zalloc", 1), ALLOC("mi_heap_malloc_small", 1),
	CALLOC("mi_heap_calloc", 1, 2), CALLOC("mi_heap_mallocn", 1, 2),
	ALIGNED("mi_heap_malloc_aligned", 1, 2), ALIGNED("mi_heap_malloc_aligned_at", 1, 2),
	ALIGNED("mi_heap_zalloc_aligned", 1, 2), ALIGNED("mi_heap_zalloc_aligned_at", 1, 2),
	CALLOC("mi_heap_calloc_aligned", 1, 2), CALLOC("mi_heap_calloc_aligned_at", 1, 2),
	REALLOC("mi_heap_realloc", 1, 2), REALLOCARRAY("mi_heap_reallocn", 1, 2, 3),
	REALLOC("mi_heap_reallocf", 1, 2), REALLOC("mi_heap_rezalloc", 1, 2),
	REALLOCARRAY("mi_heap_recalloc", 1, 2, 3),
	REALLOC("mi_heap_realloc_aligned", 1, 2), REALLOC("mi_heap_realloc_aligned_at", 1, 2),
	REALLOC("mi_heap_rezalloc_aligned", 1, 2), REALLOC("mi_heap_rezalloc_aligned_at", 1, 2),
	REALLOCARRAY("mi_heap_recalloc_aligned", 1, 2, 3),
	REALLOCARRAY("mi_heap_recalloc_aligned_at", 1, 2, 3),

	/* rpmalloc */
	CALLOC("rpaligned_calloc", 1, 2), REALLOC("rpaligned_realloc", 0, 2),
	ALLOC("rpzalloc", 0), ALIGNED("rpaligned_zalloc", 1, 0),

	/* snmalloc's interface for Rust */
	ALIGNED("sn_rust_alloc", 1, 0), ALIGNED("sn_rust_alloc_zeroed", 1, 0),
	REALLOC("sn_rust_realloc", 0, 3), FREE("sn_rust_dealloc", 0),
};
/* clang-format on */
const size_t catalog_function_count = ARRAY_SIZE(catalog_functions);

/*
 * jemalloc's upstream option and its Rust crate; gperftools; mimalloc; rpmalloc; snmalloc; scudo
 * inside other C libraries.
 */
static const char *const prefixes[] = {"", "je_", "_rjem_", "tc_", "mi_", "rp", "sn_", "scudo_"};

static const struct catalog_function *find(const char *name, bool prefixed)
{
	for (size_t i = 0; i < catalog_function_count; i++) {
		const struct catalog_function *function = &catalog_functions[i];

		if ((function->prefixed || !prefixed) && !strcmp(function->name, name))
			return function;
	}
	return NULL;
}

/* Every name of the catalog has one of these in it. */
static bool is_worth_a_look(const char *name)
{
	/* C++ names are many, and "allocator" is in most. */
	if (!strncmp(name, "_Z", 2))
		return name[2] == 'n' || name[2] == 'd';
	return strstr(name, "alloc") || strstr(name, "free") || strstr(name, "align") ||
	       !strncmp(name, "tc_", 3) || !strncmp(name, "mi_", 3) || !strncmp(name, "__size_", 7);
}

const struct catalog_function *catalog_lookup(const char *name, const char *extra_prefix,
					      unsigned int *family)
{
	const struct catalog_function *function = NULL;
	size_t extra = extra_prefix ? strlen(extra_prefix) : 0;

	if (extra && !strncmp(name, extra_prefix, extra) && (function = find(name + extra, true))) {
		*family = ARRAY_SIZE(prefixes);
		return function;
	}
	if (!is_worth_a_look(name))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes) && !function; i++) {
		size_t length = strlen(prefixes[i]);

		if (strncmp(name, prefixes[i], length))
			continue;
		function = find(name + length, length);
		*family = i;
		/* The names that only one allocator has are written with its prefix. */
		for (size_t j = 1; function && !length && j < ARRAY_SIZE(prefixes); j++)
			if (!strncmp(name, prefixes[j], strlen(prefixes[j])))
				*family = j;
	}
	return function;
}

unsigned int catalog_arg_register(int arg)
{
	/* rdi, rsi, rdx, rcx, r8, r9 */
	static const unsigned char registers[] = {7, 6, 2, 1, 8, 9};

	return arg >= 0 && arg < (int)ARRAY_SIZE(registers) ? registers[arg] : 0;
}
