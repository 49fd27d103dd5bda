/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The allocation functions we know. Adding one is adding a row in catalog.c. */
#ifndef HEAPTAP_PROBE_CATALOG_H
#define HEAPTAP_PROBE_CATALOG_H

#include <stdbool.h>
#include <stddef.h>

#include "heaptap/probe.h"

#define CATALOG_NO_ARG (-1)

/* Arguments are counted from 0, as the x86-64 System V ABI passes them. */
struct catalog_function {
	const char *name;
	enum probe_kind kind;
	signed char size_arg; /* the size in bytes, or CATALOG_NO_ARG; and so below */
	signed char aux_arg;  /* the count, or the alignment */
	signed char ptr_arg;  /* the old block, or posix_memalign's out pointer */
	bool prefixed;	      /* allocators also define it with a prefix of theirs */
	bool throws;	      /* leaves with a C++ exception where it fails */
};

/* In order of rank: of two functions of which only one can count, the first one does. */
extern const struct catalog_function catalog_functions[];
extern const size_t catalog_function_count;

/*
 * The function of that name, which may have one of the prefixes of catalog.c or extra_prefix (may
 * be NULL); NULL if the catalog has none. *family is the same for functions of one prefix.
 */
const struct catalog_function *catalog_lookup(const char *name, const char *extra_prefix,
					      unsigned int *family);

/* The register (probe.h numbering) that an argument arrives in. */
unsigned int catalog_arg_register(int arg);

#endif
