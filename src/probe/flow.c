/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bounded traversal of machine code.
 *
 * The unit is a body: all instructions reached from an entry without a call. Jumps out of a
 * function stay in the body, as they keep its return address. Each body is traversed once, whoever
 * calls it, and yields the targets it jumps to; every call site is then judged by what its callee
 * jumps to: if that is a target, the target returns behind this call.
 *
 * A call that does not return is not told apart from one that does. Behind the last one of a
 * function the next function would follow, so a path also ends where .eh_frame_hdr has a function
 * begin.
 */
#include "probe/flow.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>
#include <Zydis/Zydis.h>

#include "util/cursor.h"

#define MAX_INSTRUCTIONS 20000u
#define MAX_BODIES	 512u
#define MAX_CALLS	 4096u
/*
 * Calls below `from`. glibc 2.36 needs one (posix_memalign to _mid_memalign). Deeper code is shared
 * with paths that do not start in an allocator: taking its calls for nested would lose allocations.
 */
#define MAX_DEPTH 3u

/* A power of two, at least twice MAX_INSTRUCTIONS. */
#define VISITED_SIZE 65536u

struct body {
	uint64_t entry;
	uint32_t tail_targets;
	unsigned int depth;
};

struct call {
	uint64_t return_address;
	uint32_t targets; /* reached if the callee is itself a target */
	uint32_t callee;  /* index in bodies, otherwise */
};

struct visited {
	uint64_t address;
	uint32_t body; /* index + 1; 0: free slot */
};

/* The sorted table of .eh_frame_hdr: pairs of int32, function start and FDE, relative to it. */
struct starts {
	const uint8_t *table;
	size_t count;
	uint64_t base;
};

struct trace {
	struct image *image;
	const uint64_t *targets;
	size_t target_count;
	struct starts starts;
	ZydisDecoder decoder;
	size_t instructions;
	bool truncated;
	struct body bodies[MAX_BODIES];
	size_t body_count;
	struct call calls[MAX_CALLS];
	size_t call_count;
	uint64_t pending[MAX_INSTRUCTIONS]; /* branch targets of the current body */
	size_t pending_count;
	struct visited visited[VISITED_SIZE];
};

void flow_fini(struct flow *flow)
{
	free(flow->returns);
	*flow = (struct flow){};
}

/* DW_EH_PE encodings that linkers write: pcrel|sdata4, udata4, datarel|sdata4. */
static struct starts starts_parse(struct image *image, const GElf_Phdr *phdr)
{
	size_t size;
	const uint8_t *bytes = image_bytes(image, phdr->p_vaddr, phdr->p_filesz, &size);
	struct starts starts = {.base = phdr->p_vaddr};
	struct cursor c;

	if (!bytes)
		return starts;
	c = cursor_init(bytes, size);
	if (cursor_u8(&c) != 1 || cursor_u8(&c) != 0x1b || cursor_u8(&c) != 0x03 ||
	    cursor_u8(&c) != 0x3b)
		return starts;
	cursor_u32(&c); /* .eh_frame */
	starts.count = cursor_u32(&c);
	if (starts.count > cursor_left(&c) / 8)
		starts.count = cursor_left(&c) / 8;
	starts.table = cursor_bytes(&c, starts.count * 8);
	return starts;
}

static struct starts starts_load(struct image *image)
{
	size_t count;

	if (elf_getphdrnum(image_elf(image), &count))
		count = 0;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;

		if (gelf_getphdr(image_elf(image), i, &phdr) && phdr.p_type == PT_GNU_EH_FRAME)
			return starts_parse(image, &phdr);
	}
	return (struct starts){};
}

static bool starts_contain(const struct starts *starts, uint64_t address)
{
	size_t low = 0, high = starts->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t start;
		int32_t relative;

		memcpy(&relative, starts->table + middle * 8, sizeof(relative));
		start = starts->base + (uint64_t)(int64_t)relative;
		if (start == address)
			return true;
		if (start < address)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static uint32_t target_bits(const struct trace *trace, uint64_t address)
{
	uint32_t bits = 0;

	for (size_t i = 0; i < trace->target_count; i++)
		if (trace->targets[i] == address)
			bits |= 1u << i;
	return bits;
}

/* False if the instruction was visited in this body before. */
static bool visit(struct trace *trace, uint32_t body, uint64_t address)
{
	size_t slot = (address * 0x9e3779b97f4a7c15ull + body * 0x85ebca6bull) >> 48;

	for (;; slot++) {
		struct visited *visited = &trace->visited[slot % VISITED_SIZE];

		if (!visited->body) {
			*visited = (struct visited){address, body + 1};
			return true;
		}
		if (visited->address == address && visited->body == body + 1)
			return false;
	}
}

static void add_call(struct trace *trace, const struct body *caller, uint64_t callee,
		     uint64_t return_address)
{
	struct call call = {
		.return_address = return_address,
		.targets = target_bits(trace, callee),
	};

	if (trace->call_count == MAX_CALLS) {
		trace->truncated = true;
		return;
	}
	while (!call.targets && call.callee < trace->body_count &&
	       trace->bodies[call.callee].entry != callee)
		call.callee++;
	if (!call.targets && call.callee == trace->body_count) {
		/* The depth is a choice of what to look at, not a failure to see it. */
		if (caller->depth == MAX_DEPTH)
			return;
		if (trace->body_count == MAX_BODIES) {
			trace->truncated = true;
			return;
		}
		trace->bodies[trace->body_count++] = (struct body){
			.entry = callee,
			.depth = caller->depth + 1,
		};
	}
	trace->calls[trace->call_count++] = call;
}

static void add_jump(struct trace *trace, struct body *body, uint64_t address)
{
	uint32_t targets = target_bits(trace, address);

	/* A loop back to its own entry is no call, even where that is a target. */
	if (targets && address != body->entry)
		body->tail_targets |= targets;
	else if (trace->pending_count < MAX_INSTRUCTIONS)
		trace->pending[trace->pending_count++] = address;
	else
		trace->truncated = true;
}

/* Handles one instruction. Returns whether the next one is reached behind it. */
static bool step(struct trace *trace, struct body *body, uint64_t address,
		 const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands)
{
	bool direct;
	ZyanU64 destination = 0;

	direct = insn->operand_count && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
		 ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, &operands[0], address, &destination));
	switch (insn->meta.category) {
	case ZYDIS_CATEGORY_CALL:
		if (direct)
			add_call(trace, body, destination, address + insn->length);
		return true;
	case ZYDIS_CATEGORY_COND_BR:
		if (direct)
			add_jump(trace, body, destination);
		return true;
	case ZYDIS_CATEGORY_UNCOND_BR:
		if (direct)
			add_jump(trace, body, destination);
		return false;
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_INTERRUPT:
		return false;
	default:
		return insn->mnemonic != ZYDIS_MNEMONIC_HLT && insn->mnemonic != ZYDIS_MNEMONIC_UD2;
	}
}

static void follow_path(struct trace *trace, uint32_t index, uint64_t address)
{
	struct body *body = &trace->bodies[index];
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;

	while (visit(trace, index, address)) {
		size_t size;
		const uint8_t *bytes;

		if (trace->instructions == MAX_INSTRUCTIONS) {
			trace->truncated = true;
			return;
		}
		trace->instructions++;
		bytes = image_bytes(trace->image, address, ZYDIS_MAX_INSTRUCTION_LENGTH, &size);
		if (!bytes || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&trace->decoder, bytes, size,
								   &insn, operands)))
			return;
		if (!step(trace, body, address, &insn, operands))
			return;
		address += insn.length;
		if (starts_contain(&trace->starts, address))
			return;
	}
}

/* Breadth first: bodies near `from` come before the instruction bound. */
static void follow_bodies(struct trace *trace)
{
	for (size_t i = 0; i < trace->body_count && !trace->truncated; i++) {
		trace->pending[0] = trace->bodies[i].entry;
		trace->pending_count = 1;
		while (trace->pending_count && !trace->truncated)
			follow_path(trace, i, trace->pending[--trace->pending_count]);
	}
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int collect(const struct trace *trace, struct flow *ret)
{
	struct flow flow = {
		.tail_targets = trace->bodies[0].tail_targets,
		.truncated = trace->truncated,
	};
	size_t kept = 0;

	flow.returns = calloc(trace->call_count + 1, sizeof(*flow.returns));
	if (!flow.returns)
		return -ENOMEM;
	for (size_t i = 0; i < trace->call_count; i++) {
		const struct call *call = &trace->calls[i];

		if (call->targets || trace->bodies[call->callee].tail_targets)
			flow.returns[flow.return_count++] = call->return_address;
	}
	qsort(flow.returns, flow.return_count, sizeof(*flow.returns), compare_addresses);
	for (size_t i = 0; i < flow.return_count; i++)
		if (!kept || flow.returns[kept - 1] != flow.returns[i])
			flow.returns[kept++] = flow.returns[i];
	flow.return_count = kept;
	*ret = flow;
	return 0;
}

int flow_trace(struct image *image, uint64_t from, const uint64_t *targets, size_t target_count,
	       struct flow *ret)
{
	struct trace *trace _cleanup_free_ = calloc(1, sizeof(*trace));

	if (!trace)
		return -ENOMEM;
	trace->image = image;
	trace->targets = targets;
	trace->target_count = target_count < FLOW_MAX_TARGETS ? target_count : FLOW_MAX_TARGETS;
	trace->starts = starts_load(image);
	trace->bodies[trace->body_count++] = (struct body){.entry = from};
	ZydisDecoderInit(&trace->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	follow_bodies(trace);
	return collect(trace, ret);
}
