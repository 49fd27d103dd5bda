/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The C allocation functions.
 *
 * Not here: reallocarray() and strdup() and their like, which only call others.
 */
#include "probe/catalog.h"

#include "util/cleanup.h"

#define NONE CATALOG_NO_ARG

const struct catalog_function catalog_functions[] = {
	/* clang-format off */
	/* name, kind, size, aux, ptr */
	{"malloc", PROBE_ALLOC, 0, NONE, NONE},
	{"calloc", PROBE_CALLOC, 1, 0, NONE},
	{"realloc", PROBE_REALLOC, 1, NONE, 0},
	{"memalign", PROBE_MEMALIGN, 1, 0, NONE},
	{"aligned_alloc", PROBE_MEMALIGN, 1, 0, NONE},
	{"posix_memalign", PROBE_OUT_ALLOC, 2, 1, 0},
	{"valloc", PROBE_ALLOC, 0, NONE, NONE},
	{"pvalloc", PROBE_ALLOC, 0, NONE, NONE},
	{"free", PROBE_FREE, NONE, NONE, 0},
	{"cfree", PROBE_FREE, NONE, NONE, 0},
	/* clang-format on */
};
const size_t catalog_function_count = ARRAY_SIZE(catalog_functions);

unsigned int catalog_arg_register(int arg)
{
	/* rdi, rsi, rdx, rcx, r8, r9 */
	static const unsigned char registers[] = {7, 6, 2, 1, 8, 9};

	return arg >= 0 && arg < (int)ARRAY_SIZE(registers) ? registers[arg] : 0;
}
