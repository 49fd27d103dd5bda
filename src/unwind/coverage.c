/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unwind/coverage.h"

#include <errno.h>

#include "elf/cfi.h"
#include "unwind/spans.h"

/* Functions are aligned to 16 bytes. */
#define PADDING 15

static uint64_t no_more(uint64_t bytes, uint64_t limit)
{
	return bytes < limit ? bytes : limit;
}

static struct coverage sum_up(const struct spans *spans)
{
	struct coverage sum = {.code = spans->code_bytes};
	uint64_t end = 0;

	for (size_t i = 0; i < spans->count; i++) {
		const struct span *span = &spans->entries[i];
		uint64_t *bytes = span->function ? &sum.described : &sum.decoded;

		*bytes += span->end - span->start;
		if (i && span->start - end <= PADDING)
			*bytes += span->start - end;
		end = span->end;
	}
	/* What is described may lie outside of the sections, and so may padding. */
	sum.described = no_more(sum.described, sum.code);
	sum.decoded = no_more(sum.decoded, sum.code - sum.described);
	return sum;
}

int coverage_of_code(struct image *image, const struct symtab *symtab, struct coverage *ret)
{
	struct cfi *cfi CLEANUP(cfi) = NULL;
	struct spans spans = {};
	struct code code;
	int err;

	err = code_load(image, &code);
	if (err)
		return err;
	err = cfi_load(image, &cfi);
	if (err && err != -ENOENT)
		return err;
	err = spans_collect(image, &code, cfi, symtab, &spans);
	if (!err)
		*ret = sum_up(&spans);
	spans_fini(&spans);
	return err;
}
