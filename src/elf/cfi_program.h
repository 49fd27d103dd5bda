/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Call frame instructions: from a program to the rules that hold while it runs. See cfi.h. */
#ifndef HEAPTAP_ELF_CFI_PROGRAM_H
#define HEAPTAP_ELF_CFI_PROGRAM_H

#include "elf/cfi_section.h"
#include "heaptap/unwind.h"

/* DWARF's numbers: x86-64 psABI, figure 3.36. */
#define CFI_REG_BP 6
#define CFI_REG_SP 7

enum cfi_reg_kind {
	CFI_REG_SAME,
	CFI_REG_UNDEFINED,
	CFI_REG_AT_CFA, /* saved at CFA + offset */
	CFI_REG_AT_BP,	/* saved at rbp + offset */
	CFI_REG_AT_SP,	/* saved at rsp + offset */
	CFI_REG_OTHER,	/* anything that a rule cannot express */
};

struct cfi_reg {
	enum cfi_reg_kind kind;
	int64_t offset;
};

enum cfi_cfa_kind {
	CFI_CFA_REG,   /* reg + offset */
	CFI_CFA_DEREF, /* *(reg + offset) + extra */
	CFI_CFA_PLT,   /* extra is the threshold */
	CFI_CFA_OTHER,
};

struct cfi_cfa {
	enum cfi_cfa_kind kind;
	uint64_t reg; /* DWARF number: 6 rbp, 7 rsp */
	int64_t offset;
	int64_t extra;
};

struct cfi_state {
	struct cfi_cfa cfa;
	struct cfi_reg bp;
	struct cfi_reg ra;
};

/* Of a CIE, what its FDEs' programs depend on. */
struct cfi_context {
	uint64_t code_align;
	int64_t data_align;
	uint64_t ra_reg;
	uint8_t pointer_encoding;
	bool signal;
	struct cfi_state initial;
};

/* A rule that holds from a virtual address up to the next row's. */
struct cfi_row {
	uint64_t start;
	struct unwind_rule rule;
};

/* Grows as needed; reused from function to function. */
struct cfi_rows {
	struct cfi_row *entries;
	size_t count;
	size_t capacity;
};

void cfi_rows_fini(struct cfi_rows *rows);
/* Adds a row, unless the one before has the same rule. Errors: -ENOMEM. */
int cfi_rows_add(struct cfi_rows *rows, uint64_t start, const struct unwind_rule *rule);

/* Runs a CIE's initial instructions; fills context->initial. Errors: -EBADMSG, -ENOMEM. */
int cfi_program_init(struct cfi_context *context, struct cursor program,
		     const struct cfi_bases *bases);

/*
 * Runs an FDE's instructions over [start, end) and appends its rows. What is valid but cannot be
 * expressed becomes CFA_UNSUPPORTED. Errors: -EBADMSG if the program is malformed (the rows added
 * until then must be discarded), -ENOMEM.
 */
int cfi_program_run(const struct cfi_context *context, struct cursor program,
		    const struct cfi_bases *bases, uint64_t start, uint64_t end,
		    struct cfi_rows *rows);

/* The rule of a state; signal: of a signal frame's function. */
struct unwind_rule cfi_rule(const struct cfi_state *state, bool signal);

/* Symbolic evaluation of the expressions that compilers, linkers and libc write. */
void cfi_expression_cfa(struct cursor expression, struct cfi_cfa *ret);
/* value: the register's value is computed, not the address where it is saved. */
void cfi_expression_reg(struct cursor expression, bool value, uint64_t reg, struct cfi_reg *ret);

#endif
