/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows by decoding: musl's libc and hand-written assembly have no unwind information.
 *
 * The code is decoded in a straight line, keeping the distance from the CFA to rsp, and to rbp
 * where that is made a frame pointer. A branch hands its state to its target; behind a jump or a
 * return the state is what a branch has brought there, or the one at the last indirect jump, as
 * a switch's cases are reached by it. Backward branches need a second pass, which also writes the
 * rows. What rsp is after `and` or a variable `sub` is not known, but rbp usually tells the CFA.
 */
#include "unwind/synth.h"

#include <errno.h>
#include <stdlib.h>
#include <Zydis/Zydis.h>

#include "util/cleanup.h"

struct state {
	bool known;    /* reached, and decoded up to here */
	bool end;      /* of the outermost frame */
	bool sp_known; /* CFA is rsp + sp */
	bool bp_known; /* CFA is rbp + bp */
	bool bp_saved; /* the caller's rbp is at CFA - saved */
	bool bp_lost;  /* overwritten without having been saved */
	int32_t sp;
	int32_t bp;
	int32_t saved;
};

struct decoder {
	const struct synth_code *code;
	ZydisDecoder zydis;
	uint32_t *claims; /* by offset: index in states + 1, what a branch has brought there */
	struct state *states;
	size_t state_count;
	size_t state_capacity;
	size_t next_start; /* index in code->starts */
	struct state at_switch;
	struct cfi_rows *rows; /* NULL in the first pass */
};

/* Frames beyond this are not believed: all sums stay far from overflow. */
#define MAX_FRAME (1 << 28)

static const struct state entry_state = {.known = true, .sp_known = true, .sp = 8};

static bool is_rsp(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_RSP || reg == ZYDIS_REGISTER_ESP || reg == ZYDIS_REGISTER_SP ||
	       reg == ZYDIS_REGISTER_SPL;
}

static bool is_rbp(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_RBP || reg == ZYDIS_REGISTER_EBP || reg == ZYDIS_REGISTER_BP ||
	       reg == ZYDIS_REGISTER_BPL;
}

static bool is_reg(const ZydisDecodedOperand *operand, ZydisRegister reg)
{
	return operand->type == ZYDIS_OPERAND_TYPE_REGISTER && operand->reg.value == reg;
}

/* [base + displacement] and nothing else. */
static bool is_at(const ZydisDecodedOperand *operand, ZydisRegister base)
{
	return operand->type == ZYDIS_OPERAND_TYPE_MEMORY && operand->mem.base == base &&
	       operand->mem.index == ZYDIS_REGISTER_NONE &&
	       operand->mem.segment != ZYDIS_REGISTER_FS &&
	       operand->mem.segment != ZYDIS_REGISTER_GS;
}

static int32_t displacement(const ZydisDecodedOperand *operand)
{
	return operand->mem.disp.has_displacement ? (int32_t)operand->mem.disp.value : 0;
}

static void sp_lost(struct state *state)
{
	state->sp_known = false;
}

static void sp_set(struct state *state, int64_t sp)
{
	state->sp_known = sp >= 0 && sp <= MAX_FRAME;
	state->sp = state->sp_known ? (int32_t)sp : 0;
}

static void sp_move(struct state *state, int64_t pushed)
{
	if (state->sp_known)
		sp_set(state, state->sp + pushed);
}

static void bp_set(struct state *state, int64_t bp)
{
	state->bp_known = state->sp_known && bp > -MAX_FRAME && bp < MAX_FRAME;
	state->bp = state->bp_known ? (int32_t)bp : 0;
	state->bp_lost = !state->bp_saved;
}

static void bp_written(struct state *state)
{
	state->bp_known = false;
	state->bp_lost = !state->bp_saved;
}

static void bp_save(struct state *state, int64_t below_cfa)
{
	if (!state->sp_known || state->bp_saved || state->bp_lost || below_cfa < 8 ||
	    below_cfa > MAX_FRAME)
		return;
	state->bp_saved = true;
	state->saved = (int32_t)below_cfa;
}

/* rbp was read from this distance below the CFA. */
static void bp_load(struct state *state, int64_t below_cfa)
{
	state->bp_known = false;
	if (state->bp_saved && state->sp_known && state->saved == below_cfa)
		state->bp_saved = state->bp_lost = false;
	else
		state->bp_lost = !state->bp_saved;
}

static void step_leave(struct state *state)
{
	state->sp_known = state->bp_known;
	sp_set(state, state->bp);
	state->sp_known &= state->bp_known;
	bp_load(state, state->sp);
	sp_move(state, -8);
}

/* Whether the instruction is one of those that move rsp or rbp in a known way; if so, moves it. */
static bool step_known(struct state *state, const ZydisDecodedInstruction *insn,
		       const ZydisDecodedOperand *operands)
{
	const ZydisDecodedOperand *to = &operands[0], *from = &operands[1];

	switch (insn->mnemonic) {
	case ZYDIS_MNEMONIC_PUSH:
		sp_move(state, insn->operand_width / 8);
		if (is_reg(to, ZYDIS_REGISTER_RBP) && !state->bp_known)
			bp_save(state, state->sp);
		return true;
	case ZYDIS_MNEMONIC_PUSHFQ:
		sp_move(state, 8);
		return true;
	case ZYDIS_MNEMONIC_POPFQ:
		sp_move(state, -8);
		return true;
	case ZYDIS_MNEMONIC_POP:
		if (is_reg(to, ZYDIS_REGISTER_RSP))
			return false;
		if (is_reg(to, ZYDIS_REGISTER_RBP))
			bp_load(state, state->sp);
		sp_move(state, -(insn->operand_width / 8));
		return true;
	case ZYDIS_MNEMONIC_LEAVE:
		step_leave(state);
		return true;
	case ZYDIS_MNEMONIC_ADD:
	case ZYDIS_MNEMONIC_SUB:
		if (!is_reg(to, ZYDIS_REGISTER_RSP) || from->type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
			return false;
		sp_move(state, insn->mnemonic == ZYDIS_MNEMONIC_SUB ? from->imm.value.s
								    : -from->imm.value.s);
		return true;
	case ZYDIS_MNEMONIC_LEA:
		if (is_reg(to, ZYDIS_REGISTER_RSP) && is_at(from, ZYDIS_REGISTER_RSP)) {
			sp_move(state, -(int64_t)displacement(from));
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RSP) && is_at(from, ZYDIS_REGISTER_RBP) &&
		    state->bp_known) {
			sp_set(state, (int64_t)state->bp - displacement(from));
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RBP) && is_at(from, ZYDIS_REGISTER_RSP)) {
			bp_set(state, (int64_t)state->sp - displacement(from));
			return true;
		}
		return false;
	case ZYDIS_MNEMONIC_MOV:
		if (is_reg(to, ZYDIS_REGISTER_RBP) && is_reg(from, ZYDIS_REGISTER_RSP)) {
			bp_set(state, state->sp);
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RSP) && is_reg(from, ZYDIS_REGISTER_RBP) &&
		    state->bp_known) {
			sp_set(state, state->bp);
			return true;
		}
		if (is_at(to, ZYDIS_REGISTER_RSP) && is_reg(from, ZYDIS_REGISTER_RBP)) {
			if (!state->bp_known)
				bp_save(state, (int64_t)state->sp - displacement(to));
			return true;
		}
		if (is_reg(to, ZYDIS_REGISTER_RBP) && is_at(from, ZYDIS_REGISTER_RSP)) {
			bp_load(state, (int64_t)state->sp - displacement(from));
			return true;
		}
		return false;
	case ZYDIS_MNEMONIC_XOR:
		/* The ABI's mark of the outermost frame, if rbp is still the caller's. */
		if (is_rbp(to->reg.value) && is_reg(from, to->reg.value) && !state->bp_saved &&
		    !state->bp_lost && !state->bp_known)
			state->end = true;
		return false;
	case ZYDIS_MNEMONIC_CALL:
		return true;
	default:
		return false;
	}
}

static void step(struct state *state, const ZydisDecodedInstruction *insn,
		 const ZydisDecodedOperand *operands)
{
	if (step_known(state, insn, operands))
		return;
	for (size_t i = 0; i < insn->operand_count; i++) {
		if (operands[i].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !(operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			continue;
		if (is_rsp(operands[i].reg.value))
			sp_lost(state);
		if (is_rbp(operands[i].reg.value))
			bp_written(state);
	}
}

static struct unwind_rule express(const struct state *state)
{
	struct unwind_rule rule = {};

	if (state->known && state->end)
		return (struct unwind_rule){.cfa_kind = CFA_END};
	if (!state->known || (!state->sp_known && !state->bp_known) ||
	    (state->bp_lost && !state->bp_saved))
		return (struct unwind_rule){.cfa_kind = CFA_UNSUPPORTED};
	rule.cfa_kind = state->bp_known ? CFA_BP : CFA_SP;
	rule.cfa_offset = state->bp_known ? state->bp : state->sp;
	if (state->bp_saved) {
		rule.bp_kind = BP_CFA;
		rule.bp_offset = -state->saved;
	}
	return rule;
}

static int claim(struct decoder *d, uint64_t target, const struct state *state)
{
	uint64_t at = target - d->code->vaddr;

	if (at >= d->code->size || d->claims[at] || !state->known)
		return 0;
	if (!d->state_count || memcmp(&d->states[d->state_count - 1], state, sizeof(*state))) {
		if (d->state_count == d->state_capacity) {
			size_t capacity = d->state_capacity ? d->state_capacity * 2 : 64;
			struct state *states = reallocarray(d->states, capacity, sizeof(*states));

			if (!states)
				return -ENOMEM;
			d->states = states;
			d->state_capacity = capacity;
		}
		d->states[d->state_count++] = *state;
	}
	d->claims[at] = (uint32_t)d->state_count;
	return 0;
}

static bool is_start(struct decoder *d, uint64_t vaddr)
{
	const struct synth_code *code = d->code;

	while (d->next_start < code->start_count && code->starts[d->next_start] < vaddr)
		d->next_start++;
	return d->next_start < code->start_count && code->starts[d->next_start] == vaddr;
}

/* What holds before the instruction at an offset, `state` being what the one before it left. */
static struct state arrive(struct decoder *d, size_t at, const struct state *state)
{
	uint64_t vaddr = d->code->vaddr + at;
	bool start = !at || is_start(d, vaddr);
	struct state result = *state;

	if (start || (!state->known && d->code->many && !d->claims[at])) {
		result = entry_state;
		d->at_switch.known = false;
	} else if (d->claims[at]) {
		result = d->states[d->claims[at] - 1];
	} else if (!state->known) {
		result = d->at_switch;
	}
	if (d->code->entry && vaddr == d->code->entry)
		result.end = true;
	return result;
}

/* mov $15,%eax or %rax; syscall: rt_sigreturn. Returns the code's size, 0 if it is not this. */
static size_t match_restorer(const uint8_t *bytes, size_t size)
{
	static const uint8_t wide[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
	static const uint8_t narrow[] = {0xb8, 15, 0, 0, 0, 0x0f, 0x05};

	if (size >= sizeof(wide) && !memcmp(bytes, wide, sizeof(wide)))
		return sizeof(wide);
	if (size >= sizeof(narrow) && !memcmp(bytes, narrow, sizeof(narrow)))
		return sizeof(narrow);
	return 0;
}

static int emit_restorer(struct decoder *d, uint64_t vaddr)
{
	const struct unwind_rule rule = {.cfa_kind = CFA_SIGNAL};

	if (!d->rows)
		return 0;
	while (d->rows->count && d->rows->entries[d->rows->count - 1].start >= vaddr - 1)
		d->rows->count--;
	return cfi_rows_add(d->rows, vaddr - 1, &rule);
}

static int emit(struct decoder *d, uint64_t vaddr, const struct state *state)
{
	const struct unwind_rule rule = express(state);

	return d->rows ? cfi_rows_add(d->rows, vaddr, &rule) : 0;
}

/* Hands the state to where the instruction may jump, and clears it if nothing follows. */
static int branch(struct decoder *d, const ZydisDecodedInstruction *insn,
		  const ZydisDecodedOperand *operands, uint64_t vaddr, struct state *state)
{
	ZyanU64 target;
	int err = 0;

	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
		if (operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
			d->at_switch = *state;
		else if (ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, operands, vaddr, &target)))
			err = claim(d, target, state);
		if (insn->meta.category == ZYDIS_CATEGORY_UNCOND_BR)
			state->known = false;
		break;
	case ZYDIS_CATEGORY_RET:
		state->known = false;
		break;
	default:
		if (insn->mnemonic == ZYDIS_MNEMONIC_HLT || insn->mnemonic == ZYDIS_MNEMONIC_UD2 ||
		    insn->mnemonic == ZYDIS_MNEMONIC_INT3)
			state->known = false;
	}
	return err;
}

static int pass(struct decoder *d)
{
	const struct synth_code *code = d->code;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	struct state state = {};
	size_t restorer;
	int err = 0;

	d->next_start = 0;
	d->at_switch = (struct state){};
	for (size_t at = 0; !err && at < code->size;) {
		uint64_t vaddr = code->vaddr + at;

		state = arrive(d, at, &state);
		restorer = match_restorer(code->bytes + at, code->size - at);
		if (restorer) {
			err = emit_restorer(d, vaddr);
			state.known = false;
			at += restorer;
			continue;
		}
		err = emit(d, vaddr, &state);
		if (err)
			break;
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&d->zydis, code->bytes + at,
							 code->size - at, &insn, operands))) {
			state.known = false;
			at++;
			continue;
		}
		step(&state, &insn, operands);
		err = branch(d, &insn, operands, vaddr, &state);
		at += insn.length;
	}
	return err;
}

int synth_rows(const struct synth_code *code, struct cfi_rows *rows)
{
	uint32_t *claims _cleanup_free_ = NULL;
	struct decoder d = {.code = code};
	int err;

	rows->count = 0;
	if (code->size > SYNTH_MAX_SIZE)
		return -E2BIG;
	claims = calloc(code->size ? code->size : 1, sizeof(*claims));
	if (!claims)
		return -ENOMEM;
	d.claims = claims;
	ZydisDecoderInit(&d.zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	err = pass(&d);
	d.rows = rows;
	if (!err)
		err = pass(&d);
	free(d.states);
	return err;
}

static int add_target(struct synth_targets *targets, uint64_t address)
{
	if (targets->count == targets->capacity) {
		size_t capacity = targets->capacity ? targets->capacity * 2 : 256;
		uint64_t *addresses =
			reallocarray(targets->addresses, capacity, sizeof(*addresses));

		if (!addresses)
			return -ENOMEM;
		targets->addresses = addresses;
		targets->capacity = capacity;
	}
	targets->addresses[targets->count++] = address;
	return 0;
}

int synth_targets_add(struct synth_targets *targets, const uint8_t *bytes, size_t size,
		      uint64_t vaddr)
{
	int err = 0;

	/* call rel32: e8; lea reg,[rip + disp32]: REX.W 8d, ModRM 00 reg 101 */
	for (size_t at = 0; !err && at + 5 <= size; at++) {
		size_t skip;
		int32_t distance;

		if (bytes[at] == 0xe8)
			skip = 1;
		else if ((bytes[at] & 0xfb) == 0x48 && bytes[at + 1] == 0x8d &&
			 (bytes[at + 2] & 0xc7) == 0x05 && at + 7 <= size)
			skip = 3;
		else
			continue;
		memcpy(&distance, bytes + at + skip, sizeof(distance));
		err = add_target(targets, vaddr + at + skip + 4 + (uint64_t)(int64_t)distance);
	}
	return err;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void synth_targets_sort(struct synth_targets *targets)
{
	size_t kept = 0;

	if (!targets->count)
		return;
	qsort(targets->addresses, targets->count, sizeof(*targets->addresses), compare_addresses);
	for (size_t i = 0; i < targets->count; i++)
		if (!kept || targets->addresses[kept - 1] != targets->addresses[i])
			targets->addresses[kept++] = targets->addresses[i];
	targets->count = kept;
}

void synth_targets_fini(struct synth_targets *targets)
{
	free(targets->addresses);
	*targets = (struct synth_targets){};
}
