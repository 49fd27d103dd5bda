/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The call frame instruction machine: DWARF 5, section 6.4.2, and the GNU extensions.
 *
 * A row is the state between two advances of the location. Only what x86-64 stack walks need is
 * tracked: the CFA, rbp and the return address.
 */
#include "elf/cfi_program.h"

#include <errno.h>
#include <stdlib.h>

#include "util/cleanup.h"

/* Compilers nest two deep; a bound for what is not from a compiler. */
#define REMEMBER_DEPTH 64

enum {
	CFA_nop = 0x00,
	CFA_set_loc = 0x01,
	CFA_advance_loc1 = 0x02,
	CFA_advance_loc2 = 0x03,
	CFA_advance_loc4 = 0x04,
	CFA_offset_extended = 0x05,
	CFA_restore_extended = 0x06,
	CFA_undefined = 0x07,
	CFA_same_value = 0x08,
	CFA_register = 0x09,
	CFA_remember_state = 0x0a,
	CFA_restore_state = 0x0b,
	CFA_def_cfa = 0x0c,
	CFA_def_cfa_register = 0x0d,
	CFA_def_cfa_offset = 0x0e,
	CFA_def_cfa_expression = 0x0f,
	CFA_expression = 0x10,
	CFA_offset_extended_sf = 0x11,
	CFA_def_cfa_sf = 0x12,
	CFA_def_cfa_offset_sf = 0x13,
	CFA_val_offset = 0x14,
	CFA_val_offset_sf = 0x15,
	CFA_val_expression = 0x16,
	CFA_MIPS_advance_loc8 = 0x1d,
	CFA_GNU_window_save = 0x2d,
	CFA_GNU_args_size = 0x2e,
	CFA_GNU_negative_offset_extended = 0x2f,
	CFA_advance_loc = 0x40, /* these three carry an operand in their low 6 bits */
	CFA_offset = 0x80,
	CFA_restore = 0xc0,
};

struct machine {
	const struct cfi_context *context;
	const struct cfi_bases *bases;
	struct cursor c;
	struct cfi_state state;
	struct cfi_state remembered[REMEMBER_DEPTH];
	size_t depth;
	bool malformed;
	/* Of an FDE; a CIE's instructions have no locations and no rows. */
	struct cfi_rows *rows;
	uint64_t location;
	uint64_t end;
	int err;
};

/* Ends the current row at `location`. */
static void advance_to(struct machine *m, uint64_t location)
{
	struct unwind_rule rule;

	if (!m->rows || location < m->location) {
		m->malformed = true;
		return;
	}
	if (location == m->location || m->location >= m->end)
		return;
	rule = cfi_rule(&m->state, m->context->signal);
	m->err = cfi_rows_add(m->rows, m->location, &rule);
	m->location = location;
}

static void advance(struct machine *m, uint64_t delta)
{
	uint64_t bytes, location;

	if (__builtin_mul_overflow(delta, m->context->code_align, &bytes) ||
	    __builtin_add_overflow(m->location, bytes, &location))
		m->malformed = true;
	else
		advance_to(m, location);
}

static void set_loc(struct machine *m)
{
	uint64_t location;

	if (cfi_read_pointer(&m->c, m->context->pointer_encoding, m->bases, &location))
		advance_to(m, location);
	else
		m->malformed = true;
}

static void set_reg(struct machine *m, uint64_t reg, enum cfi_reg_kind kind, int64_t offset)
{
	if (reg == CFI_REG_BP)
		m->state.bp = (struct cfi_reg){kind, offset};
	if (reg == m->context->ra_reg)
		m->state.ra = (struct cfi_reg){kind, offset};
}

static int64_t scaled(struct machine *m, int64_t factored)
{
	int64_t offset;

	/* INT64_MIN has no negative. */
	if (!__builtin_mul_overflow(factored, m->context->data_align, &offset) &&
	    offset != INT64_MIN)
		return offset;
	m->malformed = true;
	return 0;
}

static int64_t factored_unsigned(struct machine *m)
{
	uint64_t factored = cursor_uleb128(&m->c);

	if (factored > INT64_MAX)
		m->malformed = true;
	return scaled(m, (int64_t)factored);
}

static int64_t factored_signed(struct machine *m)
{
	return scaled(m, cursor_sleb128(&m->c));
}

static void restore_reg(struct machine *m, uint64_t reg)
{
	if (reg == CFI_REG_BP)
		m->state.bp = m->context->initial.bp;
	if (reg == m->context->ra_reg)
		m->state.ra = m->context->initial.ra;
}

static struct cursor expression(struct machine *m)
{
	uint64_t size = cursor_uleb128(&m->c);
	const void *bytes = cursor_bytes(&m->c, size);

	return bytes ? cursor_init(bytes, size) : (struct cursor){};
}

static void set_reg_expression(struct machine *m, bool value)
{
	uint64_t reg = cursor_uleb128(&m->c);
	struct cursor c = expression(m);
	struct cfi_reg result;

	if (m->c.underflow || (reg != CFI_REG_BP && reg != m->context->ra_reg))
		return;
	cfi_expression_reg(c, value, reg, &result);
	set_reg(m, reg, result.kind, result.offset);
}

/* As libgcc does, the offset is kept where an expression is in force, but has no effect then. */
static void set_cfa_offset(struct machine *m, int64_t offset)
{
	if (m->state.cfa.kind == CFI_CFA_REG)
		m->state.cfa.offset = offset;
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
	m->state.cfa = (struct cfi_cfa){CFI_CFA_REG, reg, offset, 0};
}

static int64_t unsigned_offset(struct machine *m)
{
	uint64_t offset = cursor_uleb128(&m->c);

	/* What does not fit is not expressed; the sign must not make it fit. */
	return offset > INT64_MAX ? INT64_MAX : (int64_t)offset;
}

static void remember(struct machine *m)
{
	if (m->depth == REMEMBER_DEPTH)
		m->malformed = true;
	else
		m->remembered[m->depth++] = m->state;
}

static void restore(struct machine *m)
{
	if (!m->depth)
		m->malformed = true;
	else
		m->state = m->remembered[--m->depth];
}

static void step_extended(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->c;
	uint64_t reg;

	switch (op) {
	case CFA_nop:
	case CFA_GNU_window_save: /* SPARC's register windows */
		break;
	case CFA_set_loc:
		set_loc(m);
		break;
	case CFA_advance_loc1:
		advance(m, cursor_u8(c));
		break;
	case CFA_advance_loc2:
		advance(m, cursor_u16(c));
		break;
	case CFA_advance_loc4:
		advance(m, cursor_u32(c));
		break;
	case CFA_MIPS_advance_loc8:
		advance(m, cursor_u64(c));
		break;
	case CFA_offset_extended:
		reg = cursor_uleb128(c);
		set_reg(m, reg, CFI_REG_AT_CFA, factored_unsigned(m));
		break;
	case CFA_offset_extended_sf:
		reg = cursor_uleb128(c);
		set_reg(m, reg, CFI_REG_AT_CFA, factored_signed(m));
		break;
	case CFA_GNU_negative_offset_extended:
		reg = cursor_uleb128(c);
		set_reg(m, reg, CFI_REG_AT_CFA, -factored_unsigned(m));
		break;
	case CFA_val_offset:
	case CFA_val_offset_sf:
		set_reg(m, cursor_uleb128(c), CFI_REG_OTHER, 0);
		cursor_uleb128(c);
		break;
	case CFA_restore_extended:
		restore_reg(m, cursor_uleb128(c));
		break;
	case CFA_undefined:
		set_reg(m, cursor_uleb128(c), CFI_REG_UNDEFINED, 0);
		break;
	case CFA_same_value:
		set_reg(m, cursor_uleb128(c), CFI_REG_SAME, 0);
		break;
	case CFA_register:
		reg = cursor_uleb128(c);
		set_reg(m, reg, cursor_uleb128(c) == reg ? CFI_REG_SAME : CFI_REG_OTHER, 0);
		break;
	case CFA_remember_state:
		remember(m);
		break;
	case CFA_restore_state:
		restore(m);
		break;
	case CFA_def_cfa:
		reg = cursor_uleb128(c);
		set_cfa(m, reg, unsigned_offset(m));
		break;
	case CFA_def_cfa_sf:
		reg = cursor_uleb128(c);
		set_cfa(m, reg, factored_signed(m));
		break;
	case CFA_def_cfa_register:
		set_cfa(m, cursor_uleb128(c),
			m->state.cfa.kind == CFI_CFA_REG ? m->state.cfa.offset : 0);
		break;
	case CFA_def_cfa_offset:
		set_cfa_offset(m, unsigned_offset(m));
		break;
	case CFA_def_cfa_offset_sf:
		set_cfa_offset(m, factored_signed(m));
		break;
	case CFA_def_cfa_expression:
		cfi_expression_cfa(expression(m), &m->state.cfa);
		break;
	case CFA_expression:
		set_reg_expression(m, false);
		break;
	case CFA_val_expression:
		set_reg_expression(m, true);
		break;
	case CFA_GNU_args_size:
		cursor_uleb128(c);
		break;
	default:
		m->malformed = true;
	}
}

static int run(struct machine *m)
{
	while (!m->malformed && !m->err && !m->c.underflow && cursor_left(&m->c)) {
		uint8_t op = cursor_u8(&m->c), operand = op & 0x3f;

		switch (op & 0xc0) {
		case CFA_advance_loc:
			advance(m, operand);
			break;
		case CFA_offset:
			set_reg(m, operand, CFI_REG_AT_CFA, factored_unsigned(m));
			break;
		case CFA_restore:
			restore_reg(m, operand);
			break;
		default:
			step_extended(m, op);
		}
	}
	if (m->err)
		return m->err;
	return m->malformed || m->c.underflow ? -EBADMSG : 0;
}

int cfi_program_init(struct cfi_context *context, struct cursor program,
		     const struct cfi_bases *bases)
{
	struct machine *m _cleanup_free_ = malloc(sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	/* A register that no instruction names is the ABI's business: the callee saves rbp. */
	context->initial = (struct cfi_state){.cfa.kind = CFI_CFA_OTHER, .ra.kind = CFI_REG_OTHER};
	m->context = context;
	m->bases = bases;
	m->c = program;
	m->state = context->initial;
	m->depth = 0;
	m->malformed = false;
	m->rows = NULL;
	m->err = 0;
	err = run(m);
	if (!err)
		context->initial = m->state;
	return err;
}

int cfi_program_run(const struct cfi_context *context, struct cursor program,
		    const struct cfi_bases *bases, uint64_t start, uint64_t end,
		    struct cfi_rows *rows)
{
	struct machine m;
	int err;

	m.context = context;
	m.bases = bases;
	m.c = program;
	m.state = context->initial;
	m.depth = 0;
	m.malformed = false;
	m.rows = rows;
	m.location = start;
	m.end = end;
	m.err = 0;
	err = run(&m);
	/* The last row lasts until the end of the function. */
	if (!err && m.location < end) {
		advance_to(&m, end);
		err = m.err;
	}
	return err;
}
