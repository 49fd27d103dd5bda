/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any bytes as an ELF file with unwind information: both kinds of tables are built. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/symtab.h"
#include "unwind/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What every user of a table relies on. */
static void check(const struct unwind_rows *rows)
{
	if (!rows->count)
		abort();
	for (size_t i = 0; i < rows->count; i++) {
		const struct rule_row *row = &rows->entries[i];

		if (row->rule.cfa_kind >= CFA_KINDS || row->rule.bp_kind >= BP_KINDS)
			abort();
		if (i && row->offset <= row[-1].offset)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	if (image_open(fd, "fuzz", &image))
		return 0;
	symtab_load(image, &symtab);
	for (int all = 0; all < 2; all++) {
		struct unwind_rows *rows CLEANUP(unwind_rows) = NULL;

		if (!unwind_rows_build(image, symtab, all, &rows))
			check(rows);
	}
	return 0;
}
