/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every call site is judged by what its callee is or jumps to: if that is a target, the target
 * returns behind this call.
 *
 * Whether a body only delegates is a question about its ways out. Along each way it is noted
 * whether a target was called (`passed`) and which registers hold constants (code_state.c); at a
 * join only what holds on both sides is kept. A body delegates if every way out has passed; a
 * target also if it returns a constant as failures do on the others. A call passes if its callee is
 * a target or delegates; callees are judged first, and again until nothing changes.
 */
#include "probe/flow.h"

#include <errno.h>

#include "probe/code_graph.h"
#include "probe/code_sharing.h"

#define MAX_ROUNDS 4u

struct flow_graph {
	struct code_graph code;
};

void flow_fini(struct flow *flow)
{
	free(flow->tails);
	free(flow->returns);
	*flow = (struct flow){};
}

static bool call_reaches(const struct code_graph *graph, const struct call *call)
{
	return target_set_any(&call->targets) || (call->unknown && graph->has_dlsym) ||
	       (call->callee != CODE_NO_BODY && graph->bodies[call->callee].reaches);
}

/* As often as calls lead down. */
static void find_reaching(struct code_graph *graph)
{
	for (unsigned int depth = 0; depth <= graph->max_depth; depth++) {
		for (size_t i = 0; i < graph->body_count; i++) {
			struct body *body = &graph->bodies[i];

			body->reaches |= target_set_any(&body->tails);
			for (uint32_t j = body->first_call; j && !body->reaches;
			     j = graph->calls[j - 1].next)
				body->reaches = call_reaches(graph, &graph->calls[j - 1]);
		}
	}
}

/* Whether one of its callees was proved to delegate after the body was followed. */
static bool is_outdated(const struct code_graph *graph, const struct body *body)
{
	for (uint32_t i = body->first_call; i; i = graph->calls[i - 1].next) {
		uint32_t callee = graph->calls[i - 1].callee;

		if (callee != CODE_NO_BODY && graph->bodies[callee].proved > body->followed)
			return true;
	}
	return false;
}

static void find_delegating(struct code_graph *graph)
{
	bool changed = true;

	find_reaching(graph);
	graph->judging = true;
	for (unsigned int round = 0; changed && round < MAX_ROUNDS && !graph->truncated; round++) {
		changed = false;
		/* Callees have higher indexes, mostly. */
		for (size_t i = graph->body_count; i-- > 0;) {
			struct body *body = &graph->bodies[i];

			if (!body->reaches || body->delegates)
				continue;
			if (is_outdated(graph, body))
				code_graph_follow(graph, i);
			body->delegates = !body->own_exit && !body->own_constant &&
					  !body->own_zero && !graph->truncated;
			changed |= body->delegates;
			if (body->delegates)
				body->proved = graph->round + 1;
		}
	}
}

int flow_graph_new(struct linkage *linkage, uint32_t module, const struct place *targets,
		   size_t target_count, unsigned int max_depth, struct flow_graph **ret)
{
	struct flow_graph *graph CLEANUP(flow_graph) = calloc(1, sizeof(*graph));
	struct code_graph *code;
	int err;

	if (!graph)
		return -ENOMEM;
	code = &graph->code;
	code->linkage = linkage;
	code->module = module;
	code->targets = targets;
	code->max_depth = max_depth;
	code->target_count = target_count < FLOW_MAX_TARGETS ? target_count : FLOW_MAX_TARGETS;
	code->has_dlsym = linkage_looks_up(linkage, module);
	ZydisDecoderInit(&code->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t i = 0; i < code->target_count; i++)
		if (targets[i].module == module)
			code_graph_body(code, targets[i].vaddr, 0);
	code->instructions = CODE_MAX_INSTRUCTIONS;
	/* Breadth first: bodies near the targets come before the instruction bound. */
	for (size_t i = 0; i < code->body_count && !code->truncated; i++)
		code_graph_follow(code, i);
	find_delegating(code);
	if (code->err)
		return code->err;
	err = code_sharing_find(code);
	if (err)
		return err;
	*ret = take_ptr(graph);
	return 0;
}

void flow_graph_free(struct flow_graph *graph)
{
	if (!graph)
		return;
	code_graph_fini(&graph->code);
	free(graph);
}

static int collect_tails(const struct code_graph *graph, const struct body *body, struct flow *flow)
{
	flow->tails = calloc(graph->target_count + 1, sizeof(*flow->tails));
	if (!flow->tails)
		return -ENOMEM;
	for (size_t i = 0; i < graph->target_count; i++)
		if (target_set_has(&body->tails, i))
			flow->tails[flow->tail_count++] = i;
	return 0;
}

static int add_return(const struct code_graph *graph, struct flow *flow, uint64_t vaddr,
		      uint32_t target)
{
	struct flow_return *returns;

	for (size_t i = 0; i < flow->return_count; i++)
		if (flow->returns[i].place.vaddr == vaddr && flow->returns[i].target == target)
			return 0;
	returns = reallocarray(flow->returns, flow->return_count + 1, sizeof(*returns));
	if (!returns)
		return -ENOMEM;
	flow->returns = returns;
	returns[flow->return_count++] = (struct flow_return){
		.place = {graph->module, vaddr},
		.target = target,
		.shared = code_sharing_has(graph, vaddr),
	};
	return 0;
}

static int collect_returns(const struct code_graph *graph, const struct call *call,
			   struct flow *flow)
{
	struct target_set targets = call->targets;
	bool unknown = call->unknown;
	int err = 0;

	if (call->callee != CODE_NO_BODY) {
		target_set_merge(&targets, &graph->bodies[call->callee].tails);
		unknown |= graph->bodies[call->callee].unknown_tail;
	}
	if (unknown)
		err = add_return(graph, flow, call->return_address, FLOW_UNKNOWN);
	for (size_t i = 0; i < graph->target_count && !err; i++)
		if (target_set_has(&targets, i))
			err = add_return(graph, flow, call->return_address, i);
	return err;
}

/* Bodies down to a depth, each once, the nearest first. depths: by body, 0 if it was not met. */
static int collect_calls(const struct code_graph *graph, uint32_t root, struct flow *flow)
{
	_cleanup_free_ uint32_t *queue = calloc(graph->body_count + 1, sizeof(*queue));
	_cleanup_free_ uint8_t *depths = calloc(graph->body_count + 1, sizeof(*depths));
	size_t count = 0;
	int err = 0;

	if (!queue || !depths)
		return -ENOMEM;
	queue[count++] = root;
	depths[root] = 1;
	for (size_t i = 0; i < count && !err; i++) {
		const struct body *body = &graph->bodies[queue[i]];

		for (uint32_t j = body->first_call; j && !err; j = graph->calls[j - 1].next) {
			uint32_t callee = graph->calls[j - 1].callee;

			err = collect_returns(graph, &graph->calls[j - 1], flow);
			if (callee == CODE_NO_BODY || depths[callee] ||
			    depths[queue[i]] > graph->max_depth)
				continue;
			depths[callee] = depths[queue[i]] + 1;
			queue[count++] = callee;
		}
	}
	return err;
}

static bool delegates(const struct body *body, enum flow_result result)
{
	if (!body->reaches || body->own_exit)
		return false;
	switch (result) {
	case FLOW_RETURNS_ERROR:
		return !body->own_zero;
	case FLOW_RETURNS_NOTHING:
		return !body->own_zero && !body->own_constant;
	default:
		/* It may have called the target for its own needs. */
		return !body->other_result;
	}
}

int flow_graph_query(const struct flow_graph *graph, size_t target, enum flow_result result,
		     struct flow *ret)
{
	struct flow flow
		__attribute__((cleanup(cleanup_flow))) = {.truncated = graph->code.truncated};
	const struct code_graph *code = &graph->code;
	const struct body *body;
	uint32_t root = 0;
	int err;

	while (root < code->body_count && (target >= code->target_count ||
					   code->bodies[root].entry != code->targets[target].vaddr))
		root++;
	if (root == code->body_count) {
		*ret = (struct flow){.truncated = true};
		return 0;
	}
	body = &code->bodies[root];
	flow.unknown_tail = body->unknown_tail;
	flow.delegates = delegates(body, result) && !code->truncated;
	err = collect_tails(code, body, &flow);
	if (!err)
		err = collect_calls(code, root, &flow);
	if (err)
		return err;
	*ret = flow;
	flow = (struct flow){};
	return 0;
}
