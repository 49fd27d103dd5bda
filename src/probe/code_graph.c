/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bounded traversal of machine code.
 *
 * The unit is a body: all instructions reached from an entry without a call. Jumps out of a
 * function stay in the body, as they keep its return address. Each body is traversed once, whoever
 * calls it, and yields the targets it jumps to, its calls, and its ways out.
 *
 * A call that does not return is not told apart from one that does. Behind the last one of a
 * function the next function would follow, so a path also ends behind a call where .eh_frame_hdr
 * has a function begin.
 */
#include "probe/code_graph.h"

#include <errno.h>
#include <string.h>

#define MAX_BODIES 16384u
/* Of a function that a pointer is initialized with. */
#define MAX_INITIALIZER 256u

/* A path to be followed. */
struct path {
	uint64_t address;
	struct code_state state;
};

/* What is known at an instruction, in one round. */
struct visited {
	uint64_t address;
	uint32_t key; /* of the round and `passed`; 0: free */
	struct code_state state;
};

/* Where a branch leads. */
struct destination {
	/* From that which tells most. */
	enum {
		TO_TARGET,  /* to those in targets */
		TO_POINTER, /* where a pointer set at run time points */
		TO_CODE,    /* of the module, at vaddr */
		TO_OUTSIDE, /* to another module's code that is no target */
		TO_UNKNOWN, /* a jump table, an object's method */
	} kind;
	uint64_t vaddr;		   /* 0 if it is not in the module, or not known */
	struct target_set targets; /* that it may lead to, whatever kind */
	bool is_dlsym;
};

/* Room for one more in an array that grows by doubling. False, and err is set, without memory. */
static bool grow(struct code_graph *graph, void *array, size_t count, size_t *capacity, size_t size)
{
	size_t wanted = *capacity ? 2 * *capacity : 256;
	void *grown;

	if (count < *capacity)
		return true;
	grown = reallocarray(*(void **)array, wanted, size);
	if (!grown) {
		graph->err = -ENOMEM;
		graph->truncated = true;
		return false;
	}
	*(void **)array = grown;
	*capacity = wanted;
	return true;
}

bool target_set_any(const struct target_set *bits)
{
	uint64_t any = 0;

	for (size_t i = 0; i < FLOW_MAX_TARGETS / 64; i++)
		any |= bits->words[i];
	return any;
}

void target_set_merge(struct target_set *bits, const struct target_set *more)
{
	for (size_t i = 0; i < FLOW_MAX_TARGETS / 64; i++)
		bits->words[i] |= more->words[i];
}

bool target_set_has(const struct target_set *bits, size_t i)
{
	return bits->words[i / 64] >> i % 64 & 1;
}

static bool decode(struct code_graph *graph, uint64_t address, ZydisDecodedInstruction *insn,
		   ZydisDecodedOperand *operands)
{
	size_t size;
	const uint8_t *bytes = image_bytes(linkage_image(graph->linkage, graph->module), address,
					   ZYDIS_MAX_INSTRUCTION_LENGTH, &size);

	return bytes &&
	       ZYAN_SUCCESS(ZydisDecoderDecodeFull(&graph->decoder, bytes, size, insn, operands));
}

/* The word that an indirect branch or load takes its pointer from, if the code says which. */
static bool slot_operand(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operand,
			 uint64_t address, uint64_t *ret)
{
	ZyanU64 slot;

	if (operand->type != ZYDIS_OPERAND_TYPE_MEMORY || operand->mem.base != ZYDIS_REGISTER_RIP ||
	    operand->mem.index != ZYDIS_REGISTER_NONE ||
	    !ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, operand, address, &slot)))
		return false;
	*ret = slot;
	return true;
}

static struct destination to_place(const struct code_graph *graph, struct place place)
{
	struct destination to = {.kind = TO_OUTSIDE};

	if (place.module == graph->module) {
		to.kind = TO_CODE;
		to.vaddr = place.vaddr;
	}

	for (size_t i = 0; i < graph->target_count; i++) {
		if (graph->targets[i].module != place.module ||
		    graph->targets[i].vaddr != place.vaddr)
			continue;
		to.kind = TO_TARGET;
		to.targets.words[i / 64] |= 1ull << i % 64;
	}
	return to;
}

static bool is_dlsym(const char *name)
{
	return name && (!strcmp(name, "dlsym") || !strcmp(name, "dlvsym"));
}

/* The word that a PLT stub jumps through, if there is one at this address. */
static bool stub_slot(struct code_graph *graph, uint64_t address, uint64_t *ret)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;

	if (!decode(graph, address, &insn, operands))
		return false;
	if (insn.mnemonic == ZYDIS_MNEMONIC_ENDBR64) {
		address += insn.length;
		if (!decode(graph, address, &insn, operands))
			return false;
	}
	return insn.mnemonic == ZYDIS_MNEMONIC_JMP &&
	       slot_operand(&insn, &operands[0], address, ret);
}

/* Takes one off those that may still be looked at. */
static bool count_instruction(struct code_graph *graph)
{
	if (!graph->instructions) {
		graph->truncated = true;
		return false;
	}
	graph->instructions--;
	return true;
}

/*
 * Whether a function asks dlsym(): by it a forwarder's pointers are often initialized, to be
 * replaced by what is found. Its calls are looked into as far as `depth`.
 */
static bool asks_dlsym(struct code_graph *graph, uint64_t address, unsigned int depth)
{
	const struct functions *starts = linkage_starts(graph->linkage, graph->module);
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	ZyanU64 callee;
	uint64_t slot;

	for (size_t i = 0; i < MAX_INITIALIZER && count_instruction(graph) &&
			   decode(graph, address, &insn, operands);
	     i++) {
		bool calls = insn.meta.category == ZYDIS_CATEGORY_CALL;
		bool direct = calls && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
			      ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&insn, &operands[0], address,
								    &callee));

		if (calls && (slot_operand(&insn, &operands[0], address, &slot) ||
			      (direct && stub_slot(graph, callee, &slot)))) {
			const struct place at = {graph->module, slot};

			if (is_dlsym(linkage_slot_name(graph->linkage, at)))
				return true;
		} else if (direct && depth && asks_dlsym(graph, callee, depth - 1)) {
			return true;
		}
		address += insn.length;
		if (functions_begin(starts, address))
			break;
	}
	return false;
}

static struct destination through_slot(struct code_graph *graph, uint64_t slot)
{
	const struct place at = {graph->module, slot};
	const char *name = linkage_slot_name(graph->linkage, at);
	struct destination to = {.kind = name ? TO_OUTSIDE : TO_POINTER};
	struct place place;

	if (linkage_follow(graph->linkage, at, &place))
		to = to_place(graph, place);
	to.is_dlsym = is_dlsym(name);
	if (!name && graph->has_dlsym && to.kind == TO_CODE && asks_dlsym(graph, to.vaddr, 1))
		to = (struct destination){.kind = TO_POINTER};
	return to;
}

/* A direct branch; where it leads to a PLT stub, what that stands for. */
static struct destination to_address(struct code_graph *graph, uint64_t address)
{
	struct destination to = to_place(graph, (struct place){graph->module, address});
	uint64_t slot;

	if (to.kind == TO_CODE && stub_slot(graph, address, &slot))
		return through_slot(graph, slot);
	return to;
}

/* The bit by which states know a word, or CODE_STATE_NO_VARIABLE if there are too many. */
static uint16_t slot_variable(struct body *body, uint64_t slot)
{
	for (size_t i = 0; i < body->slot_count; i++)
		if (body->slots[i] == slot)
			return 1u << i;
	if (body->slot_count == CODE_MAX_SLOTS)
		return CODE_STATE_NO_VARIABLE;
	body->slots[body->slot_count] = slot;
	return 1u << body->slot_count++;
}

/* Through a register that was loaded from one of some words, or got from dlsym(). */
static struct destination through_pointer(struct code_graph *graph, const struct body *body,
					  uint16_t variables)
{
	struct destination to = {.kind = TO_POINTER};
	bool first = true;

	for (size_t i = 0; i < body->slot_count; i++) {
		struct destination one;

		if (!(variables >> i & 1))
			continue;
		one = through_slot(graph, body->slots[i]);
		target_set_merge(&one.targets, &to.targets);
		/* Of several destinations the worst counts. */
		if (!first && to.kind > one.kind)
			one.kind = to.kind;
		/* Code on one of several ways only. */
		if (!first && one.kind == TO_CODE)
			one.kind = TO_OUTSIDE;
		to = one;
		first = false;
	}
	return to;
}

static struct destination branch_destination(struct code_graph *graph, const struct body *body,
					     uint64_t address, const ZydisDecodedInstruction *insn,
					     const ZydisDecodedOperand *operands,
					     const struct code_state *state)
{
	uint16_t variables;
	ZyanU64 absolute;
	uint64_t slot;

	if (operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
	    ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, &operands[0], address, &absolute)))
		return to_address(graph, absolute);
	if (slot_operand(insn, &operands[0], address, &slot))
		return through_slot(graph, slot);
	if (operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    code_state_is_pointer(state, operands[0].reg.value, &variables))
		return through_pointer(graph, body, variables);
	return (struct destination){.kind = TO_UNKNOWN};
}

uint32_t code_graph_body(struct code_graph *graph, uint64_t entry, unsigned int depth)
{
	for (uint32_t i = 0; i < graph->body_count; i++)
		if (graph->bodies[i].entry == entry)
			return i;
	/* The depth is a choice of what to look at, not a failure to see it. */
	if (graph->judging || depth > graph->max_depth)
		return CODE_NO_BODY;
	if (graph->body_count == MAX_BODIES) {
		graph->truncated = true;
		return CODE_NO_BODY;
	}
	if (!grow(graph, &graph->bodies, graph->body_count, &graph->body_capacity,
		  sizeof(*graph->bodies)))
		return CODE_NO_BODY;
	graph->bodies[graph->body_count] = (struct body){.entry = entry, .depth = depth};
	return graph->body_count++;
}

static void add_call(struct code_graph *graph, uint32_t index, struct call *call)
{
	struct body *body = &graph->bodies[index];

	for (uint32_t i = body->first_call; i; i = graph->calls[i - 1].next)
		if (graph->calls[i - 1].return_address == call->return_address)
			return;
	if (!grow(graph, &graph->calls, graph->call_count, &graph->call_capacity,
		  sizeof(*graph->calls)))
		return;
	call->next = body->first_call;
	graph->calls[graph->call_count++] = *call;
	body->first_call = graph->call_count;
}

static void handle_call(struct code_graph *graph, uint32_t index, const struct destination *to,
			uint64_t return_address, struct code_state *state)
{
	struct call call = {
		.callee = CODE_NO_BODY,
		.return_address = return_address,
		.targets = to->targets,
		/*
		 * Where an object's method leads is only guessed at in the target itself: what lies
		 * deeper is called by others, too.
		 */
		.unknown = to->kind == TO_POINTER ||
			   (to->kind == TO_UNKNOWN && !graph->bodies[index].depth),
	};
	bool passes;

	if (to->kind == TO_CODE)
		call.callee = code_graph_body(graph, to->vaddr, graph->bodies[index].depth + 1);
	passes = to->kind == TO_TARGET || (to->kind == TO_POINTER && graph->has_dlsym) ||
		 (call.callee != CODE_NO_BODY && graph->bodies[call.callee].delegates);
	code_state_call(state, to->is_dlsym, passes);
	state->passed |= passes;
	if (!graph->judging &&
	    (target_set_any(&to->targets) || call.unknown || call.callee != CODE_NO_BODY))
		add_call(graph, index, &call);
}

static void add_part(struct code_graph *graph, uint64_t start)
{
	if (!graph->judging &&
	    functions_begin(linkage_starts(graph->linkage, graph->module), start) &&
	    grow(graph, &graph->parts, graph->part_count, &graph->part_capacity,
		 sizeof(*graph->parts)))
		graph->parts[graph->part_count++] = (struct code_part){.start = start};
}

static void add_path(struct code_graph *graph, uint64_t address, const struct code_state *state)
{
	add_part(graph, address);
	if (grow(graph, &graph->pending, graph->pending_count, &graph->pending_capacity,
		 sizeof(*graph->pending)))
		graph->pending[graph->pending_count++] = (struct path){address, *state};
}

static void handle_jump(struct code_graph *graph, uint32_t index, const struct destination *to,
			const struct code_state *state)
{
	struct body *body = &graph->bodies[index];

	switch (to->kind) {
	case TO_TARGET:
		/* A loop back to its own entry is no call, even where that is a target. */
		if (to->vaddr && to->vaddr == body->entry)
			add_path(graph, to->vaddr, state);
		else
			target_set_merge(&body->tails, &to->targets);
		return;
	case TO_CODE:
		add_path(graph, to->vaddr, state);
		return;
	case TO_POINTER:
		/* A forwarder to what dlsym() finds, where nothing was found yet. */
		body->unknown_tail = true;
		body->reaches |= graph->has_dlsym;
		body->own_exit |= !state->passed && !graph->has_dlsym;
		return;
	case TO_OUTSIDE:
	case TO_UNKNOWN:
		target_set_merge(&body->tails, &to->targets);
		body->own_exit |= !state->passed;
		return;
	}
}

static void handle_return(struct body *body, const struct code_state *state)
{
	bool zero;

	if (state->passed) {
		body->other_result |= code_state_returns_other(state);
		return;
	}
	if (!code_state_returns_constant(state, &zero))
		body->own_exit = true;
	else if (zero)
		body->own_zero = true;
	else
		body->own_constant = true;
}

/* Handles one instruction. Returns whether the next one is reached behind it. */
static bool step(struct code_graph *graph, uint32_t index, uint64_t address,
		 const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
		 struct code_state *state)
{
	struct body *body = &graph->bodies[index];
	uint16_t variable = CODE_STATE_NO_VARIABLE;
	struct destination to;
	uint64_t slot;

	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_CALL:
		to = branch_destination(graph, body, address, insn, operands, state);
		handle_call(graph, index, &to, address + insn->length, state);
		return true;
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
		to = branch_destination(graph, body, address, insn, operands, state);
		handle_jump(graph, index, &to, state);
		return insn->meta.category == ZYDIS_CATEGORY_COND_BR;
	case ZYDIS_CATEGORY_RET:
		handle_return(body, state);
		return false;
	case ZYDIS_CATEGORY_INTERRUPT:
		return false;
	default:
		if (insn->mnemonic == ZYDIS_MNEMONIC_HLT || insn->mnemonic == ZYDIS_MNEMONIC_UD2)
			return false;
		if (insn->mnemonic == ZYDIS_MNEMONIC_MOV &&
		    slot_operand(insn, &operands[1], address, &slot))
			variable = slot_variable(body, slot);
		code_state_step(state, insn, operands, variable);
		return true;
	}
}

static struct visited *find_visited(const struct code_graph *graph, uint64_t address, uint32_t key)
{
	size_t slot = (address * 0x9e3779b97f4a7c15ull + key * 0x85ebca6bull) >> 32;

	for (;; slot++) {
		struct visited *visited = &graph->visited[slot & (graph->visited_size - 1)];

		if (visited->key / 2 != graph->round ||
		    (visited->address == address && visited->key == key))
			return visited;
	}
}

static bool grow_visited(struct code_graph *graph)
{
	struct visited *old = graph->visited;
	size_t old_size = graph->visited_size;

	if (graph->visited_count * 2 < old_size)
		return true;
	graph->visited_size = old_size ? 2 * old_size : 16384;
	graph->visited = calloc(graph->visited_size, sizeof(*graph->visited));
	if (!graph->visited) {
		graph->visited = old;
		graph->visited_size = old_size;
		graph->err = -ENOMEM;
		graph->truncated = true;
		return false;
	}
	for (size_t i = 0; i < old_size; i++)
		if (old[i].key / 2 == graph->round)
			*find_visited(graph, old[i].address, old[i].key) = old[i];
	free(old);
	return true;
}

/*
 * Keeps at an instruction what holds on all ways to it, in *state too. False if that is known
 * already.
 */
static bool visit(struct code_graph *graph, uint64_t address, struct code_state *state)
{
	uint32_t key = graph->round * 2 + state->passed;
	struct visited *visited;

	if (!grow_visited(graph))
		return false;
	visited = find_visited(graph, address, key);
	if (visited->key / 2 == graph->round)
		return code_state_join(&visited->state, state);
	*visited = (struct visited){address, key, *state};
	graph->visited_count++;
	return true;
}

/* What may not return, or is the padding behind it. */
static bool ends_code(const ZydisDecodedInstruction *insn, bool before)
{
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_SYSCALL:
		return true;
	case ZYDIS_CATEGORY_NOP:
	case ZYDIS_CATEGORY_WIDENOP:
		return before;
	default:
		return false;
	}
}

/* The path goes on where another function begins, or where there is no code. */
static void fall_out(struct code_graph *graph, uint32_t index, const struct path *path, bool ended)
{
	struct destination to = {.kind = TO_UNKNOWN};

	if (ended)
		return;
	if (functions_begin(linkage_starts(graph->linkage, graph->module), path->address))
		to = to_address(graph, path->address);
	handle_jump(graph, index, &to, &path->state);
}

static void follow_path(struct code_graph *graph, uint32_t index, struct path path)
{
	const struct functions *starts = linkage_starts(graph->linkage, graph->module);
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	bool ended = false;

	while (visit(graph, path.address, &path.state)) {
		if (!count_instruction(graph))
			return;
		if (!decode(graph, path.address, &insn, operands)) {
			fall_out(graph, index, &path, ended);
			return;
		}
		if (!step(graph, index, path.address, &insn, operands, &path.state))
			return;
		ended = ends_code(&insn, ended);
		path.address += insn.length;
		if (functions_begin(starts, path.address)) {
			fall_out(graph, index, &path, ended);
			return;
		}
	}
}

void code_graph_follow(struct code_graph *graph, uint32_t index)
{
	const struct code_state nothing = {};

	graph->visited_count = 0;
	graph->round++;
	graph->bodies[index].followed = graph->round;
	graph->bodies[index].own_exit = false;
	graph->bodies[index].own_constant = false;
	graph->bodies[index].own_zero = false;
	graph->bodies[index].other_result = false;
	add_path(graph, graph->bodies[index].entry, &nothing);
	while (graph->pending_count && !graph->truncated)
		follow_path(graph, index, graph->pending[--graph->pending_count]);
}

void code_graph_fini(struct code_graph *graph)
{
	free(graph->bodies);
	free(graph->calls);
	free(graph->parts);
	free(graph->pending);
	free(graph->visited);
}
