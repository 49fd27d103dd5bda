/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Unwind rows for code without unwind information, from the code itself. */
#ifndef HEAPTAP_UNWIND_SYNTH_H
#define HEAPTAP_UNWIND_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/cfi_program.h"

/* What is decoded at once: more is -E2BIG. No compiler writes functions of this size. */
#define SYNTH_MAX_SIZE (8u << 20)

struct synth_code {
	const uint8_t *bytes;
	size_t size;
	uint64_t vaddr;
	uint64_t entry; /* the program's entry point, which nothing called; 0: not known */
	/* Does not begin with a function: in the middle of one, or with padding. */
	bool fragment;
	/*
	 * No symbol says that this is one function. Others start at these addresses, ascending,
	 * and where code that nothing leads to begins as functions do.
	 */
	bool many;
	const uint64_t *starts;
	size_t start_count;
};

/*
 * Replaces *rows by those of the code. Where the decoder loses track they are CFA_GAP. A
 * signal restorer's row starts one byte early, for the lookup at its address minus one. Errors:
 * -E2BIG, -ENOMEM.
 */
int synth_rows(const struct synth_code *code, struct cfi_rows *rows);

struct synth_targets {
	uint64_t *addresses;
	size_t count;
	size_t capacity;
};

/*
 * Appends the addresses that direct calls and rip-relative lea instructions in the code name.
 * Errors: -ENOMEM. The last two make one sorted list of many, and free it.
 */
int synth_targets_add(struct synth_targets *targets, const uint8_t *bytes, size_t size,
		      uint64_t vaddr);
void synth_targets_sort(struct synth_targets *targets);
void synth_targets_fini(struct synth_targets *targets);

#endif
