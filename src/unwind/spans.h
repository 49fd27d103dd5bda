/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An image's code, cut into what has unwind information and what has to be decoded. */
#ifndef HEAPTAP_UNWIND_SPANS_H
#define HEAPTAP_UNWIND_SPANS_H

#include "elf/cfi.h"
#include "elf/code.h"
#include "elf/symtab.h"

struct span {
	uint64_t start; /* file offsets */
	uint64_t end;
	/* NULL: code to decode, a function's, or if many any number of them. */
	const struct cfi_function *function;
	bool many;
	bool fragment; /* see synth.h */
};

/* By start, and not overlapping. */
struct spans {
	struct span *entries;
	size_t count;
	size_t dropped; /* functions that lie outside the code */
	uint64_t code_bytes;
	/*
	 * Less than half of the code is described: then what no symbol names is decoded, too. In
	 * other images what is left over is data, or code that keeps frame pointers.
	 */
	bool sparse;
};

/*
 * cfi and symtab may be NULL. The functions stay the cfi's. Errors: -ENOMEM; spans_fini() is legal
 * after these, too.
 */
int spans_collect(struct image *image, const struct code *code, const struct cfi *cfi,
		  const struct symtab *symtab, struct spans *ret);
void spans_fini(struct spans *spans);

#endif
