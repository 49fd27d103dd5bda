/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rows by decoding: musl's libc and hand-written assembly have no unwind information.
 *
 * The code is decoded in a straight line, keeping the distance from the CFA to rsp, and to rbp
 * where that is made a frame pointer. A branch hands its state to its target; behind a jump or a
 * return the state is what a branch has brought there, or the one at an indirect jump, by which a
 * switch's cases are reached. Code behind a call may not be reached from there either. If
 * a backward branch leads to such a place, a second pass knows. What rsp is after `and` or a
 * variable `sub` is not known, but rbp usually tells the CFA.
 */
#include "unwind/synth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/frame.h"
#include "util/cleanup.h"

struct decoder {
	const struct synth_code *code;
	ZydisDecoder zydis;
	/*
	 * By offset: what a branch has brought there, index in states + 1. For the start of a
	 * function, whose state is known: SWITCH + index, the deepest state at an indirect jump in
	 * it.
	 */
	uint32_t *claims;
	struct frame *states;
	size_t state_count;
	size_t state_capacity;
	size_t next_start; /* index in code->starts */
	size_t function;   /* offset where the current one starts */
	bool lost;	   /* it has code that nothing known leads to */
	bool again;	   /* something became known after the place that needs it */
	struct cfi_rows *rows;
};

/* No claim, but a place that was passed without knowing whether it is reached from before. */
#define GUESSED UINT32_MAX
#define SWITCH	(1u << 31)

/* Two branches deep in code that only later branches lead to. */
#define MAX_PASSES 3

/* The index of a copy. */
static int store(struct decoder *d, const struct frame *state, uint32_t *ret)
{
	if (!d->state_count || memcmp(&d->states[d->state_count - 1], state, sizeof(*state))) {
		if (d->state_count == d->state_capacity) {
			size_t capacity = d->state_capacity ? d->state_capacity * 2 : 64;
			struct frame *states = reallocarray(d->states, capacity, sizeof(*states));

			if (!states)
				return -ENOMEM;
			d->states = states;
			d->state_capacity = capacity;
		}
		d->states[d->state_count++] = *state;
	}
	*ret = (uint32_t)d->state_count - 1;
	return 0;
}

/* The claim on an offset, or NULL. */
static const struct frame *claimed(const struct decoder *d, size_t at)
{
	return d->claims[at] && d->claims[at] < SWITCH ? &d->states[d->claims[at] - 1] : NULL;
}

/* What comes from a guess gives way to what does not. */
static int claim(struct decoder *d, uint64_t target, const struct frame *state)
{
	uint64_t at = target - d->code->vaddr;
	const struct frame *before;
	uint32_t index;
	int err;

	if (at >= d->code->size || !state->known)
		return 0;
	before = claimed(d, at);
	if (before ? !before->guessed || state->guessed : d->claims[at] && d->claims[at] != GUESSED)
		return 0;
	err = store(d, state, &index);
	if (err)
		return err;
	d->again |= d->claims[at] != 0;
	d->claims[at] = index + 1;
	return 0;
}

/* The state at the current function's switch, as far as seen, or NULL. */
static const struct frame *switch_state(const struct decoder *d)
{
	uint32_t index = d->claims[d->function];

	return index >= SWITCH && index != GUESSED ? &d->states[index - SWITCH] : NULL;
}

/* Notes an indirect jump. One out of the function, with its frame gone, is less deep. */
static int add_switch(struct decoder *d, const struct frame *state)
{
	const struct frame *deepest = switch_state(d);
	uint32_t index;
	int err;

	if (!state->known || !state->sp_known || (deepest && deepest->sp >= state->sp))
		return 0;
	err = store(d, state, &index);
	if (err)
		return err;
	d->again |= d->lost;
	d->claims[d->function] = SWITCH + index;
	return 0;
}

static bool is_start(struct decoder *d, uint64_t vaddr)
{
	const struct synth_code *code = d->code;

	while (d->next_start < code->start_count && code->starts[d->next_start] < vaddr)
		d->next_start++;
	return d->next_start < code->start_count && code->starts[d->next_start] == vaddr;
}

/* endbr64, push of a 64-bit register, sub $n,%rsp: how functions like to begin. */
static bool is_prologue(const uint8_t *bytes, size_t size)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

	if (size < sizeof(endbr64))
		return false;
	return !memcmp(bytes, endbr64, sizeof(endbr64)) || (bytes[0] & 0xf8) == 0x50 ||
	       (bytes[0] == 0x41 && (bytes[1] & 0xf8) == 0x50) ||
	       (bytes[0] == 0x48 && (bytes[1] & 0xfd) == 0x81 && bytes[2] == 0xec);
}

/* Whether a function starts at an offset, `state` being what the instruction before it left. */
static bool starts_at(struct decoder *d, size_t at, const struct frame *state, bool *ret_guessed)
{
	const struct synth_code *code = d->code;
	bool reached = state->known && !state->guessed && !state->after_call;

	*ret_guessed = false;
	if (!at && !code->fragment)
		return true;
	/* Bytes that only look like a call may lead into the middle of a function. */
	if (is_start(d, code->vaddr + at) && !reached)
		return true;
	*ret_guessed = code->many && !state->known && !claimed(d, at) &&
		       is_prologue(code->bytes + at, code->size - at);
	return *ret_guessed;
}

/* What holds before the instruction at an offset. */
static struct frame arrive(struct decoder *d, size_t at, const struct frame *state)
{
	const struct frame *claim = claimed(d, at), *at_switch;
	struct frame result = *state;
	bool guessed;

	if (starts_at(d, at, state, &guessed)) {
		result = FRAME_AT_ENTRY;
		result.guessed = guessed;
		d->function = at;
		d->lost = false;
	} else if (claim && (!claim->guessed || !state->known || state->after_call)) {
		result = *claim;
	} else if (!state->known) {
		/* Among many functions, this may as well be the next one. */
		at_switch = d->code->many ? NULL : switch_state(d);
		if (at_switch) {
			result = *at_switch;
			result.guessed = true;
		}
		d->lost |= !at_switch;
	}
	if (!d->claims[at] && (!state->known || state->after_call || result.guessed))
		d->claims[at] = GUESSED;
	if (d->code->entry && d->code->vaddr + at == d->code->entry)
		result = (struct frame){.known = true, .end = true};
	result.after_call = false;
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

	while (d->rows->count && d->rows->entries[d->rows->count - 1].start >= vaddr - 1)
		d->rows->count--;
	return cfi_rows_add(d->rows, vaddr - 1, &rule);
}

static int emit(struct decoder *d, uint64_t vaddr, const struct frame *state)
{
	const struct unwind_rule rule = frame_rule(state);

	return cfi_rows_add(d->rows, vaddr, &rule);
}

/* Hands the state to where the instruction may jump, and clears it if nothing follows. */
static int branch(struct decoder *d, const ZydisDecodedInstruction *insn, uint64_t vaddr,
		  struct frame *state)
{
	bool direct = insn->raw.imm[0].is_relative;
	uint64_t target = vaddr + insn->length + (uint64_t)insn->raw.imm[0].value.s;
	int err = 0;

	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
		if (direct)
			err = claim(d, target, state);
		else
			err = add_switch(d, state);
		if (insn->meta.category == ZYDIS_CATEGORY_UNCOND_BR)
			state->known = false;
		break;
	case ZYDIS_CATEGORY_CALL:
		state->after_call = true;
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

static int decode(struct decoder *d, size_t at, struct frame *state, bool was_after_call,
		  size_t *ret_length)
{
	const struct synth_code *code = d->code;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	ZydisDecoderContext context;

	if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&d->zydis, &context, code->bytes + at,
							code->size - at, &insn))) {
		state->known = false;
		*ret_length = 1;
		return 0;
	}
	*ret_length = insn.length;
	/* Padding behind a call is not reached from it either. */
	if (insn.meta.category == ZYDIS_CATEGORY_NOP ||
	    insn.meta.category == ZYDIS_CATEGORY_WIDENOP)
		state->after_call = was_after_call;
	if (frame_concerns(&insn) &&
	    ZYAN_SUCCESS(ZydisDecoderDecodeOperands(&d->zydis, &context, &insn, operands,
						    insn.operand_count)))
		frame_step(state, &insn, operands);
	return branch(d, &insn, code->vaddr + at, state);
}

static int pass(struct decoder *d)
{
	const struct synth_code *code = d->code;
	struct frame state = {};
	bool after_call;
	size_t length;
	int err = 0;

	d->next_start = 0;
	d->again = false;
	d->lost = false;
	d->rows->count = 0;
	for (size_t at = 0; !err && at < code->size; at += length) {
		uint64_t vaddr = code->vaddr + at;

		after_call = state.after_call;
		state = arrive(d, at, &state);
		length = match_restorer(code->bytes + at, code->size - at);
		if (length) {
			err = emit_restorer(d, vaddr);
			state.known = false;
			continue;
		}
		err = emit(d, vaddr, &state);
		if (!err)
			err = decode(d, at, &state, after_call, &length);
	}
	return err;
}

int synth_rows(const struct synth_code *code, struct cfi_rows *rows)
{
	uint32_t *claims _cleanup_free_ = NULL;
	struct decoder d = {.code = code, .rows = rows};
	int err = 0;

	rows->count = 0;
	if (code->size > SYNTH_MAX_SIZE)
		return -E2BIG;
	claims = calloc(code->size ? code->size : 1, sizeof(*claims));
	if (!claims)
		return -ENOMEM;
	d.claims = claims;
	ZydisDecoderInit(&d.zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (int n = 0; !err && n < MAX_PASSES && (!n || d.again); n++)
		err = pass(&d);
	free(d.states);
	return err;
}
