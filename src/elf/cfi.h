/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Call frame information: the functions that .eh_frame or .debug_frame describe, and the unwind
 * rules that hold in them.
 */
#ifndef HEAPTAP_ELF_CFI_H
#define HEAPTAP_ELF_CFI_H

#include "elf/cfi_program.h"
#include "elf/image.h"

struct cfi;

/* One FDE. */
struct cfi_function {
	uint64_t start; /* virtual addresses */
	uint64_t end;
	bool signal;	 /* a signal frame: start is no return address, look it up at start - 1 */
	bool from_debug; /* in .debug_frame */
	uint32_t cie;	 /* internal, like what follows */
	const uint8_t *program;
	size_t program_size;
};

/*
 * Reads .eh_frame, found by its section or by PT_GNU_EH_FRAME, and .debug_frame where the former
 * describes next to nothing. Malformed records are counted and left out. Errors: -ENOENT if no
 * function is described, -ENOMEM, -E2BIG.
 */
int cfi_load(struct image *image, struct cfi **ret);
void cfi_free(struct cfi *cfi);
DEFINE_CLEANUP(cfi, struct cfi *, cfi_free)

/* The functions by start, then in file order. They may overlap. */
size_t cfi_count(const struct cfi *cfi);
const struct cfi_function *cfi_get(const struct cfi *cfi, size_t index);
/* Records that were malformed. */
size_t cfi_dropped(const struct cfi *cfi);

/*
 * Replaces *rows by those of a function: the last one holds up to its end. Errors: -EBADMSG if its
 * instructions are malformed, -ENOMEM; then there are none.
 */
int cfi_rows(const struct cfi *cfi, const struct cfi_function *function, struct cfi_rows *rows);

#endif
