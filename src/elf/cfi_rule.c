/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From the state of the call frame machine to an unwind rule.
 *
 * A rule has room for what compilers write on x86-64: the return address just below the CFA, where
 * the call instruction leaves it, or undefined, which marks the outermost frame. The rest is
 * CFA_UNSUPPORTED: a frame that cannot be left is better than one that is left wrongly.
 */
#include "elf/cfi_program.h"

#include <errno.h>
#include <stdlib.h>

/* ucontext at rsp: mcontext's registers start at 40, rsp is the 16th of 8 bytes, rip the 17th. */
#define UCONTEXT_RSP 160
#define UCONTEXT_RIP 168

void cfi_rows_fini(struct cfi_rows *rows)
{
	free(rows->entries);
	*rows = (struct cfi_rows){};
}

int cfi_rows_add(struct cfi_rows *rows, uint64_t start, const struct unwind_rule *rule)
{
	if (rows->count && !memcmp(&rows->entries[rows->count - 1].rule, rule, sizeof(*rule)))
		return 0;
	if (rows->count == rows->capacity) {
		size_t capacity = rows->capacity ? rows->capacity * 2 : 64;
		struct cfi_row *entries = reallocarray(rows->entries, capacity, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		rows->entries = entries;
		rows->capacity = capacity;
	}
	rows->entries[rows->count++] = (struct cfi_row){start, *rule};
	return 0;
}

static bool fits_s32(int64_t n)
{
	return n == (int32_t)n;
}

/* Where a register is saved, said relative to the CFA if both hang on the same register. */
static struct cfi_reg relative_to_cfa(const struct cfi_reg *reg, const struct cfi_cfa *cfa)
{
	uint64_t base = reg->kind == CFI_REG_AT_BP ? CFI_REG_BP : CFI_REG_SP;
	int64_t offset;

	if ((reg->kind != CFI_REG_AT_BP && reg->kind != CFI_REG_AT_SP) ||
	    cfa->kind != CFI_CFA_REG || cfa->reg != base ||
	    __builtin_sub_overflow(reg->offset, cfa->offset, &offset))
		return *reg;
	return (struct cfi_reg){CFI_REG_AT_CFA, offset};
}

static bool express_cfa(const struct cfi_cfa *cfa, struct unwind_rule *rule)
{
	if (!fits_s32(cfa->offset) || !fits_s32(cfa->extra) ||
	    (cfa->reg != CFI_REG_SP && cfa->reg != CFI_REG_BP))
		return false;
	rule->cfa_offset = (int32_t)cfa->offset;
	rule->cfa_extra = (int32_t)cfa->extra;
	switch (cfa->kind) {
	case CFI_CFA_REG:
		rule->cfa_kind = cfa->reg == CFI_REG_SP ? CFA_SP : CFA_BP;
		rule->cfa_extra = 0;
		return true;
	case CFI_CFA_DEREF:
		rule->cfa_kind = cfa->reg == CFI_REG_SP ? CFA_DEREF_SP : CFA_DEREF_BP;
		return cfa->reg == CFI_REG_SP || !cfa->extra;
	case CFI_CFA_PLT:
		rule->cfa_kind = CFA_PLT;
		return true;
	case CFI_CFA_OTHER:
		break;
	}
	return false;
}

static bool express_bp(const struct cfi_reg *reg, struct unwind_rule *rule)
{
	if (!fits_s32(reg->offset))
		return false;
	switch (reg->kind) {
	case CFI_REG_SAME:
	case CFI_REG_UNDEFINED:
		rule->bp_kind = BP_SAME;
		return true;
	case CFI_REG_AT_CFA:
		rule->bp_kind = BP_CFA;
		break;
	case CFI_REG_AT_BP:
		rule->bp_kind = BP_DEREF_BP;
		break;
	default:
		return false;
	}
	rule->bp_offset = (int32_t)reg->offset;
	return true;
}

struct unwind_rule cfi_rule(const struct cfi_state *state, bool signal)
{
	struct cfi_reg bp = relative_to_cfa(&state->bp, &state->cfa);
	struct cfi_reg ra = relative_to_cfa(&state->ra, &state->cfa);
	struct unwind_rule rule = {};

	if (ra.kind == CFI_REG_UNDEFINED)
		return (struct unwind_rule){.cfa_kind = CFA_END};
	if (signal && state->cfa.kind == CFI_CFA_DEREF && state->cfa.reg == CFI_REG_SP &&
	    state->cfa.offset == UCONTEXT_RSP && !state->cfa.extra && ra.kind == CFI_REG_AT_SP &&
	    ra.offset == UCONTEXT_RIP)
		return (struct unwind_rule){.cfa_kind = CFA_SIGNAL};
	if (ra.kind != CFI_REG_AT_CFA || ra.offset != -8 || !express_cfa(&state->cfa, &rule) ||
	    !express_bp(&bp, &rule))
		return (struct unwind_rule){.cfa_kind = CFA_UNSUPPORTED};
	return rule;
}
