/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of a static library in a stripped program that was linked with it.
 *
 * The signatures are the library's own code, without the bytes that linkers write. What code
 * refers to is a part of it: it tells functions apart that have the same bytes, and wrappers that
 * are a mere jump.
 */
#ifndef HEAPTAP_PROBE_SIGNATURES_H
#define HEAPTAP_PROBE_SIGNATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

struct signatures;

struct signature_hit {
	const char *name; /* owned by the signatures */
	uint64_t start;	  /* virtual address */
	uint64_t size;
};

struct signature_hits {
	struct signature_hit *entries; /* by start; several names may have one */
	size_t count;
	size_t ambiguous;	    /* functions that several places could be */
	const char *ambiguous_name; /* one of them */
};

/*
 * Reads an ar archive or an object file; wanted() picks the functions to look for. Errors:
 * -ENOTSUP for a thin archive, which holds no code, -ENOEXEC if the file holds no x86-64 objects,
 * -ENODATA if they define no wanted function, -E2BIG, -ENOMEM, or what open() says.
 */
int signatures_load(const char *path, bool (*wanted)(const char *name, void *arg), void *arg,
		    struct signatures **ret);
void signatures_free(struct signatures *signatures);
DEFINE_CLEANUP(signatures, struct signatures *, signatures_free)

/*
 * Finds what of the library is in an image. A function of which it is not certain is not found;
 * none found is no error. Errors: -ENOMEM, -E2BIG past 1 GiB of code, -ENOENT for an image without
 * code, -ENOEXEC.
 */
int signatures_find(const struct signatures *signatures, struct image *image,
		    struct signature_hits *ret);
void signature_hits_fini(struct signature_hits *hits);

#endif
