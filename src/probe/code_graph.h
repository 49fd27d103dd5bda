/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The code of one module that is reached from some addresses: bodies and the calls between them.
 * For flow.c, which asks the questions.
 */
#ifndef HEAPTAP_PROBE_CODE_GRAPH_H
#define HEAPTAP_PROBE_CODE_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <Zydis/Zydis.h>

#include "probe/code_state.h"
#include "probe/flow.h"
#include "probe/linkage.h"

/* Of a module. jemalloc 5.3's allocation functions reach some 60,000. */
#define CODE_MAX_INSTRUCTIONS 400000u
#define CODE_MAX_SLOTS	      16u
#define CODE_NO_BODY	      UINT32_MAX

/* A set of targets. */
struct target_set {
	uint64_t words[FLOW_MAX_TARGETS / 64];
};

bool target_set_any(const struct target_set *set);
bool target_set_has(const struct target_set *set, size_t target);
void target_set_merge(struct target_set *set, const struct target_set *more);

/* All instructions reached from an entry without a call. */
struct body {
	uint64_t entry;
	struct target_set tails;
	unsigned int depth;
	uint32_t first_call; /* index + 1 in calls; a chain */
	bool unknown_tail;   /* it jumps where a pointer leads that is not known */
	bool reaches;	     /* it jumps to a target, or calls one or a body that reaches one */
	/* Ways out that pass no target, of this round: with a result of its own... */
	bool own_exit;
	bool own_constant;		/* ...with a constant... */
	bool own_zero;			/* ...that may be 0 */
	bool other_result;		/* one that passes returns what another call returned */
	bool delegates;			/* every way out passes a target; false until proved */
	uint32_t followed;		/* when: a round's number... */
	uint32_t proved;		/* ...and when it was proved to delegate */
	uint64_t slots[CODE_MAX_SLOTS]; /* words that the body loads: code_state's variables */
	size_t slot_count;
};

struct call {
	uint32_t next;	 /* of the same body, see first_call */
	uint32_t callee; /* index in bodies, or CODE_NO_BODY */
	uint64_t return_address;
	struct target_set targets; /* reached if the callee is itself a target */
	bool unknown;		   /* it may lead anywhere, too */
};

/* A function, as far as bodies pass through it; a body has those that it jumps to, too. */
struct code_part {
	uint64_t start;
	bool is_target;
	bool is_shared; /* see code_sharing.h */
};

struct path;
struct visited;

struct code_graph {
	struct linkage *linkage;
	uint32_t module;
	const struct place *targets;
	size_t target_count;
	unsigned int max_depth;
	bool has_dlsym; /* the module looks functions up at run time */
	ZydisDecoder decoder;
	size_t instructions; /* that may still be looked at */
	bool truncated;
	bool judging; /* bodies and calls are known */
	uint32_t round;
	int err;
	struct body *bodies;
	size_t body_count;
	size_t body_capacity;
	struct call *calls;
	size_t call_count;
	size_t call_capacity;
	struct code_part *parts; /* unordered and more than once while bodies are collected */
	size_t part_count;
	size_t part_capacity;
	struct path *pending; /* of the current body */
	size_t pending_count;
	size_t pending_capacity;
	struct visited *visited; /* open addressing */
	size_t visited_count;
	size_t visited_size; /* a power of two */
};

/* The fields above `instructions` are the caller's to set. */
void code_graph_fini(struct code_graph *graph);

/* The body that begins at an address; a new one while bodies are still being collected. */
uint32_t code_graph_body(struct code_graph *graph, uint64_t entry, unsigned int depth);

/* Follows a body, in a round of its own, and finds its ways out. */
void code_graph_follow(struct code_graph *graph, uint32_t body);

#endif
