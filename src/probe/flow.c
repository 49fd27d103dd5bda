/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bounded traversal of machine code.
 *
 * The unit is a body: all instructions reached from an entry without a call. Jumps out of a
 * function stay in the body, as they keep its return address. Each body is traversed once, whoever
 * calls it, and yields the targets it jumps to; every call site is then judged by what its callee
 * jumps to: if that is a target, the target returns behind this call.
 *
 * Whether a body only delegates is a question about its ways out. Along each way it is noted
 * whether a target was called (`passed`) and which registers hold constants (code_state.c); at a
 * join only what holds on both sides is kept. A body delegates if no way out that did not pass
 * returns anything but a constant. A call passes if its callee is a target or delegates; callees
 * are judged first, and again until nothing changes.
 *
 * A call that does not return is not told apart from one that does. Behind the last one of a
 * function the next function would follow, so a path also ends where .eh_frame_hdr has a function
 * begin.
 */
#include "probe/flow.h"

#include <errno.h>
#include <string.h>
#include <Zydis/Zydis.h>

#include "probe/code_state.h"

#define MAX_INSTRUCTIONS 20000u
#define MAX_BODIES	 512u
#define MAX_CALLS	 4096u
#define MAX_SLOTS	 16u
#define MAX_ROUNDS	 4u
/* In the rounds that judge bodies, all together. */
#define MAX_JUDGED 100000u
/*
 * Calls below `from`. glibc 2.36 needs one (posix_memalign to _mid_memalign). Deeper code is shared
 * with paths that do not start in an allocator: taking its calls for nested would lose allocations.
 */
#define MAX_DEPTH 3u

/* A power of two, at least twice what is visited in all. */
#define VISITED_SIZE (1u << 18)

struct bits {
	uint64_t words[FLOW_MAX_TARGETS / 64];
};

struct body {
	uint64_t entry;
	struct bits tails;
	unsigned int depth;
	bool reaches;	/* it jumps to a target, or calls one or a body that reaches one */
	bool own_exit;	/* a way out that passes no target and returns a result of its own */
	bool delegates; /* see above; false until proved */
	uint64_t slots[MAX_SLOTS]; /* words that the body loads pointers from */
	size_t slot_count;
};

struct call {
	uint32_t body;
	uint32_t callee; /* index in bodies, or NO_BODY */
	uint64_t return_address;
	struct bits targets; /* reached if the callee is itself a target */
	bool unknown;	     /* through a pointer that is not known */
};

#define NO_BODY UINT32_MAX

/* A path to be followed. */
struct path {
	uint64_t address;
	struct code_state state;
};

/* What is known at an instruction of a body, in one round. */
struct visited {
	uint64_t address;
	uint32_t key; /* of round, body and `passed`; 0: free */
	struct code_state state;
};

struct trace {
	struct linkage *linkage;
	uint32_t module;
	const struct place *targets;
	size_t target_count;
	bool has_dlsym; /* the module looks functions up at run time */
	ZydisDecoder decoder;
	size_t instructions; /* that may still be looked at */
	bool truncated;
	uint32_t round; /* 0: bodies and calls are collected */
	struct body bodies[MAX_BODIES];
	size_t body_count;
	struct call calls[MAX_CALLS];
	size_t call_count;
	struct path pending[MAX_INSTRUCTIONS]; /* of the current body */
	size_t pending_count;
	struct visited visited[VISITED_SIZE];
};

/* Where a branch leads. */
struct destination {
	enum {
		TO_CODE,    /* of the module, at vaddr */
		TO_TARGET,  /* to those in bits */
		TO_OUTSIDE, /* to another module's code that is no target */
		TO_POINTER, /* where a pointer set at run time points */
		TO_UNKNOWN, /* a jump table, an object's method */
	} kind;
	uint64_t vaddr; /* 0 if it is not in the module, or not known */
	struct bits targets;
	bool is_dlsym;
};

static bool bits_any(const struct bits *bits)
{
	uint64_t any = 0;

	for (size_t i = 0; i < FLOW_MAX_TARGETS / 64; i++)
		any |= bits->words[i];
	return any;
}

static void bits_merge(struct bits *bits, const struct bits *more)
{
	for (size_t i = 0; i < FLOW_MAX_TARGETS / 64; i++)
		bits->words[i] |= more->words[i];
}

static bool bits_have(const struct bits *bits, size_t i)
{
	return bits->words[i / 64] >> i % 64 & 1;
}

void flow_fini(struct flow *flow)
{
	free(flow->tails);
	free(flow->returns);
	*flow = (struct flow){};
}

static bool decode(struct trace *trace, uint64_t address, ZydisDecodedInstruction *insn,
		   ZydisDecodedOperand *operands)
{
	size_t size;
	const uint8_t *bytes = image_bytes(linkage_image(trace->linkage, trace->module), address,
					   ZYDIS_MAX_INSTRUCTION_LENGTH, &size);

	return bytes &&
	       ZYAN_SUCCESS(ZydisDecoderDecodeFull(&trace->decoder, bytes, size, insn, operands));
}

/* The word that an indirect branch or load takes its pointer from, if the code says which. */
static bool slot_operand(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operand,
			 uint64_t address, uint64_t *ret)
{
	ZyanU64 slot;

	if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY ||
	    operand->mem.base != ZYDIS_REGISTER_RIP || operand->mem.index != ZYDIS_REGISTER_NONE ||
	    !ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, operand, address, &slot)))
		return false;
	*ret = slot;
	return true;
}

static struct destination to_place(const struct trace *trace, struct place place)
{
	struct destination to = {.kind = TO_OUTSIDE};

	if (place.module == trace->module) {
		to.kind = TO_CODE;
		to.vaddr = place.vaddr;
	}

	for (size_t i = 0; i < trace->target_count; i++) {
		if (trace->targets[i].module != place.module ||
		    trace->targets[i].vaddr != place.vaddr)
			continue;
		to.kind = TO_TARGET;
		to.targets.words[i / 64] |= 1ull << i % 64;
	}
	return to;
}

static struct destination through_slot(struct trace *trace, uint64_t slot)
{
	const struct place at = {trace->module, slot};
	const char *name = linkage_slot_name(trace->linkage, at);
	struct place place;

	if (linkage_follow(trace->linkage, at, &place))
		return to_place(trace, place);
	return (struct destination){
		.kind = name ? TO_OUTSIDE : TO_POINTER,
		.is_dlsym = name && (!strcmp(name, "dlsym") || !strcmp(name, "dlvsym")),
	};
}

/* A direct branch; where it leads to a PLT stub, what that stands for. */
static struct destination to_address(struct trace *trace, uint64_t address)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	struct destination to = to_place(trace, (struct place){trace->module, address});
	ZydisDecodedInstruction insn;
	uint64_t slot;

	if (to.kind == TO_TARGET || !decode(trace, address, &insn, operands))
		return to;
	if (insn.mnemonic == ZYDIS_MNEMONIC_ENDBR64) {
		address += insn.length;
		if (!decode(trace, address, &insn, operands))
			return to;
	}
	if (insn.mnemonic == ZYDIS_MNEMONIC_JMP &&
	    slot_operand(&insn, &operands[0], address, &slot))
		return through_slot(trace, slot);
	return to;
}

static void keep_slot(struct body *body, uint64_t slot)
{
	for (size_t i = 0; i < body->slot_count; i++)
		if (body->slots[i] == slot)
			return;
	if (body->slot_count < MAX_SLOTS)
		body->slots[body->slot_count++] = slot;
}

/*
 * Through a register that was loaded from memory or got from dlsym(). Which of the words that the
 * body loads it came from is not followed: all of them that lead to targets are taken.
 */
static struct destination through_pointer(struct trace *trace, const struct body *body)
{
	struct destination to = {.kind = TO_POINTER};

	for (size_t i = 0; i < body->slot_count; i++) {
		struct destination one = through_slot(trace, body->slots[i]);

		if (one.kind != TO_TARGET)
			continue;
		to.kind = TO_TARGET;
		bits_merge(&to.targets, &one.targets);
	}
	return to;
}

static struct destination branch_destination(struct trace *trace, const struct body *body,
					     uint64_t address, const ZydisDecodedInstruction *insn,
					     const ZydisDecodedOperand *operands,
					     const struct code_state *state)
{
	ZyanU64 absolute;
	uint64_t slot;

	if (operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
	    ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, &operands[0], address, &absolute)))
		return to_address(trace, absolute);
	if (slot_operand(insn, &operands[0], address, &slot))
		return through_slot(trace, slot);
	if (operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    code_state_is_pointer(state, operands[0].reg.value))
		return through_pointer(trace, body);
	return (struct destination){.kind = TO_UNKNOWN};
}

static uint32_t find_body(struct trace *trace, const struct body *caller, uint64_t entry)
{
	for (uint32_t i = 0; i < trace->body_count; i++)
		if (trace->bodies[i].entry == entry)
			return i;
	/* The depth is a choice of what to look at, not a failure to see it. */
	if (trace->round || caller->depth == MAX_DEPTH)
		return NO_BODY;
	if (trace->body_count == MAX_BODIES) {
		trace->truncated = true;
		return NO_BODY;
	}
	trace->bodies[trace->body_count] = (struct body){
		.entry = entry,
		.depth = caller->depth + 1,
	};
	return trace->body_count++;
}

static void add_call(struct trace *trace, const struct call *call)
{
	for (size_t i = trace->call_count; i-- > 0 && trace->calls[i].body == call->body;)
		if (trace->calls[i].return_address == call->return_address)
			return;
	if (trace->call_count == MAX_CALLS)
		trace->truncated = true;
	else
		trace->calls[trace->call_count++] = *call;
}

static void handle_call(struct trace *trace, uint32_t index, const struct destination *to,
			uint64_t return_address, struct code_state *state)
{
	struct call call = {
		.body = index,
		.callee = NO_BODY,
		.return_address = return_address,
		.targets = to->targets,
		.unknown = to->kind == TO_POINTER,
	};

	if (to->kind == TO_CODE)
		call.callee = find_body(trace, &trace->bodies[index], to->vaddr);
	code_state_call(state, to->is_dlsym);
	if (to->kind == TO_TARGET || (to->kind == TO_POINTER && trace->has_dlsym) ||
	    (call.callee != NO_BODY && trace->bodies[call.callee].delegates))
		state->passed = true;
	if (!trace->round && (to->kind == TO_TARGET || call.unknown || call.callee != NO_BODY))
		add_call(trace, &call);
}

static void handle_jump(struct trace *trace, uint32_t index, const struct destination *to,
			const struct code_state *state)
{
	struct body *body = &trace->bodies[index];

	switch (to->kind) {
	case TO_TARGET:
		/* A loop back to its own entry is no call, even where that is a target. */
		if (!to->vaddr || to->vaddr != body->entry) {
			bits_merge(&body->tails, &to->targets);
			return;
		}
		/* fallthrough */
	case TO_CODE:
		if (trace->pending_count < MAX_INSTRUCTIONS)
			trace->pending[trace->pending_count++] = (struct path){to->vaddr, *state};
		else
			trace->truncated = true;
		return;
	case TO_POINTER:
		/* A forwarder to what dlsym() finds, where nothing was found yet. */
		body->reaches |= trace->has_dlsym;
		body->own_exit |= !state->passed && !trace->has_dlsym;
		return;
	case TO_OUTSIDE:
	case TO_UNKNOWN:
		body->own_exit |= !state->passed;
		return;
	}
}

/* Handles one instruction. Returns whether the next one is reached behind it. */
static bool step(struct trace *trace, uint32_t index, uint64_t address,
		 const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
		 struct code_state *state)
{
	struct body *body = &trace->bodies[index];
	struct destination to;
	uint64_t slot;

	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_CALL:
		to = branch_destination(trace, body, address, insn, operands, state);
		handle_call(trace, index, &to, address + insn->length, state);
		return true;
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
		to = branch_destination(trace, body, address, insn, operands, state);
		handle_jump(trace, index, &to, state);
		return insn->meta.category == ZYDIS_CATEGORY_COND_BR;
	case ZYDIS_CATEGORY_RET:
		body->own_exit |= !state->passed && !code_state_returns_constant(state);
		return false;
	case ZYDIS_CATEGORY_INTERRUPT:
		return false;
	default:
		if (insn->mnemonic == ZYDIS_MNEMONIC_HLT || insn->mnemonic == ZYDIS_MNEMONIC_UD2)
			return false;
		if (insn->mnemonic == ZYDIS_MNEMONIC_MOV &&
		    slot_operand(insn, &operands[1], address, &slot))
			keep_slot(body, slot);
		code_state_step(state, insn, operands);
		return true;
	}
}

/*
 * Keeps at an instruction what holds on all ways to it, in *state too. False if that is known
 * already.
 */
static bool visit(struct trace *trace, uint32_t body, uint64_t address, struct code_state *state)
{
	uint32_t key = (trace->round * MAX_BODIES + body) * 2 + state->passed + 1;
	uint32_t slot = (address * 0x9e3779b97f4a7c15ull + key * 0x85ebca6bull) >> 40;

	for (;; slot++) {
		struct visited *visited = &trace->visited[slot % VISITED_SIZE];

		if (!visited->key) {
			*visited = (struct visited){address, key, *state};
			return true;
		}
		if (visited->address == address && visited->key == key)
			return code_state_join(&visited->state, state);
	}
}

static void follow_path(struct trace *trace, uint32_t index, struct path path)
{
	const struct functions *starts = linkage_starts(trace->linkage, trace->module);
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;

	while (visit(trace, index, path.address, &path.state)) {
		if (!trace->instructions--) {
			trace->instructions = 0;
			trace->truncated = true;
			return;
		}
		if (!decode(trace, path.address, &insn, operands) ||
		    !step(trace, index, path.address, &insn, operands, &path.state))
			return;
		path.address += insn.length;
		if (functions_begin(starts, path.address))
			return;
	}
}

static void follow_body(struct trace *trace, uint32_t index)
{
	trace->bodies[index].own_exit = false;
	trace->pending[0] = (struct path){.address = trace->bodies[index].entry};
	trace->pending_count = 1;
	while (trace->pending_count && !trace->truncated)
		follow_path(trace, index, trace->pending[--trace->pending_count]);
}

/* Until nothing changes: calls lead at most MAX_DEPTH down. */
static void find_reaching(struct trace *trace)
{
	for (size_t i = 0; i < trace->body_count; i++)
		trace->bodies[i].reaches |= bits_any(&trace->bodies[i].tails);
	for (unsigned int depth = 0; depth <= MAX_DEPTH; depth++) {
		for (size_t i = 0; i < trace->call_count; i++) {
			const struct call *call = &trace->calls[i];

			trace->bodies[call->body].reaches |=
				bits_any(&call->targets) || (call->unknown && trace->has_dlsym) ||
				(call->callee != NO_BODY && trace->bodies[call->callee].reaches);
		}
	}
}

static void find_delegating(struct trace *trace)
{
	bool changed = true;

	find_reaching(trace);
	trace->instructions = MAX_JUDGED;
	while (changed && trace->round < MAX_ROUNDS && !trace->truncated) {
		changed = false;
		trace->round++;
		/* Callees have higher indexes, mostly. */
		for (size_t i = trace->body_count; i-- > 0;) {
			struct body *body = &trace->bodies[i];

			if (!body->reaches || body->delegates)
				continue;
			follow_body(trace, i);
			body->delegates = !body->own_exit && !trace->truncated;
			changed |= body->delegates;
		}
	}
}

static int collect_tails(const struct trace *trace, struct flow *flow)
{
	flow->tails = calloc(trace->target_count + 1, sizeof(*flow->tails));
	if (!flow->tails)
		return -ENOMEM;
	for (size_t i = 0; i < trace->target_count; i++)
		if (bits_have(&trace->bodies[0].tails, i))
			flow->tails[flow->tail_count++] = i;
	return 0;
}

static int add_return(struct flow *flow, uint32_t module, uint64_t vaddr, uint32_t target)
{
	struct flow_return *returns;

	for (size_t i = 0; i < flow->return_count; i++)
		if (flow->returns[i].place.vaddr == vaddr && flow->returns[i].target == target)
			return 0;
	returns = reallocarray(flow->returns, flow->return_count + 1, sizeof(*returns));
	if (!returns)
		return -ENOMEM;
	flow->returns = returns;
	returns[flow->return_count++] = (struct flow_return){{module, vaddr}, target};
	return 0;
}

static int collect_returns(const struct trace *trace, struct flow *flow)
{
	int err = 0;

	for (size_t i = 0; i < trace->call_count && !err; i++) {
		const struct call *call = &trace->calls[i];
		struct bits targets = call->targets;

		if (call->callee != NO_BODY)
			bits_merge(&targets, &trace->bodies[call->callee].tails);
		if (call->unknown)
			err = add_return(flow, trace->module, call->return_address, FLOW_UNKNOWN);
		for (size_t j = 0; j < trace->target_count && !err; j++)
			if (bits_have(&targets, j))
				err = add_return(flow, trace->module, call->return_address, j);
	}
	return err;
}

int flow_trace(struct linkage *linkage, struct place from, const struct place *targets,
	       size_t target_count, struct flow *ret)
{
	struct trace *trace _cleanup_free_ = calloc(1, sizeof(*trace));
	struct flow flow __attribute__((cleanup(cleanup_flow))) = {};
	int err;

	if (!trace)
		return -ENOMEM;
	trace->linkage = linkage;
	trace->module = from.module;
	trace->targets = targets;
	trace->target_count = target_count < FLOW_MAX_TARGETS ? target_count : FLOW_MAX_TARGETS;
	trace->has_dlsym = linkage_imports(linkage, from.module, "dlsym") ||
			   linkage_imports(linkage, from.module, "dlvsym");
	trace->bodies[trace->body_count++] = (struct body){.entry = from.vaddr};
	trace->instructions = MAX_INSTRUCTIONS;
	ZydisDecoderInit(&trace->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	/* Breadth first: bodies near `from` come before the instruction bound. */
	for (size_t i = 0; i < trace->body_count && !trace->truncated; i++)
		follow_body(trace, i);
	flow.truncated = trace->truncated;
	find_delegating(trace);
	flow.delegates = trace->bodies[0].delegates;
	err = collect_tails(trace, &flow);
	if (!err)
		err = collect_returns(trace, &flow);
	if (err)
		return err;
	*ret = flow;
	flow = (struct flow){};
	return 0;
}
