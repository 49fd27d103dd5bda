/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include "profile/address_space.h"

#include <errno.h>
#include <stdlib.h>
#include <uthash.h>

/* tree.h wants it, and Linux does not have it. */
#define __unused __attribute__((unused))
#include <bsd/sys/tree.h>

/* One call that mapped something. */
struct origin {
	struct mapper mapper;
	uint64_t bytes; /* that are still mapped */
	uint32_t users; /* ranges, here and among what threads took */
};

struct range {
	RB_ENTRY(range) node;
	struct range *next; /* among what a thread took, or is to be freed */
	uint64_t start;
	uint64_t end;
	struct origin *origin; /* NULL: nobody's */
	bool reserved;
};

/* Threads come and go: no more than that many of what their last syscalls took. */
#define MAX_TAKEN 1024

/* What a thread's syscall took. */
struct taken {
	uint32_t tid;
	uint64_t start;
	uint64_t size;
	struct range *ranges; /* by address */
	UT_hash_handle hh;
};

RB_HEAD(range_tree, range);

struct address_space {
	struct range_tree ranges;
	struct taken *taken;
	int (*changed)(void *arg, const struct mapper *mapper, const struct mapped_change *change);
	void *arg;
};

static int compare(const struct range *a, const struct range *b)
{
	return a->start < b->start ? -1 : a->start > b->start;
}

RB_GENERATE_STATIC(range_tree, range, node, compare)

int address_space_new(int (*changed)(void *arg, const struct mapper *mapper,
				     const struct mapped_change *change),
		      void *arg, struct address_space **ret)
{
	struct address_space *space = calloc(1, sizeof(*space));

	if (!space)
		return -ENOMEM;
	RB_INIT(&space->ranges);
	space->changed = changed;
	space->arg = arg;
	*ret = space;
	return 0;
}

static void range_free(struct range *range)
{
	if (range->origin && !--range->origin->users)
		free(range->origin);
	free(range);
}

static void ranges_free(struct range *ranges)
{
	struct range *next;

	for (; ranges; ranges = next) {
		next = ranges->next;
		range_free(ranges);
	}
}

static void taken_free(struct address_space *space, struct taken *taken)
{
	HASH_DEL(space->taken, taken);
	ranges_free(taken->ranges);
	free(taken);
}

void address_space_free(struct address_space *space)
{
	struct range *range;
	struct taken *taken, *next;

	if (!space)
		return;
	while ((range = RB_MIN(range_tree, &space->ranges))) {
		RB_REMOVE(range_tree, &space->ranges, range);
		range_free(range);
	}
	HASH_ITER (hh, space->taken, taken, next)
		taken_free(space, taken);
	free(space);
}

/* The range that holds an address, or the next one. */
static struct range *find(const struct address_space *space, uint64_t address)
{
	struct range wanted = {.start = address};
	struct range *at = RB_NFIND(range_tree, (struct range_tree *)&space->ranges, &wanted);
	struct range *before = at ? RB_PREV(range_tree, NULL, at)
				  : RB_MAX(range_tree, (struct range_tree *)&space->ranges);

	if (at && at->start == address)
		return at;
	return before && before->end > address ? before : at;
}

static struct range *range_new(struct origin *origin, uint64_t start, uint64_t end, bool reserved)
{
	struct range *range = calloc(1, sizeof(*range));

	if (!range)
		return NULL;
	range->start = start;
	range->end = end;
	range->reserved = reserved;
	range->origin = origin;
	if (origin)
		origin->users++;
	return range;
}

static void insert(struct address_space *space, struct range *range)
{
	RB_INSERT(range_tree, &space->ranges, range);
}

/* Makes an address a border between ranges. */
static int split(struct address_space *space, uint64_t address)
{
	struct range *range = find(space, address), *rest;

	if (!range || range->start >= address)
		return 0;
	rest = range_new(range->origin, address, range->end, range->reserved);
	if (!rest)
		return -ENOMEM;
	range->end = address;
	insert(space, rest);
	return 0;
}

/* How a range comes or goes. What is taken back has never gone. */
enum passage { MAPPED, UNMAPPED, TAKEN_BACK };

static int tell(struct address_space *space, const struct range *range, enum passage how)
{
	struct origin *origin = range->origin;
	int64_t bytes = range->end - range->start, more = how == UNMAPPED ? -bytes : bytes;
	struct mapped_change change = {.reserved = range->reserved ? more : 0};
	bool object;

	if (!origin)
		return 0;
	/* Comes with its first byte, goes with its last. */
	object = how == UNMAPPED ? origin->bytes == (uint64_t)bytes : !origin->bytes;
	origin->bytes += more;
	if (how == MAPPED) {
		change.mapped = bytes;
		change.mapped_objects = object;
	} else {
		change.unmapped = -more;
		change.unmapped_objects = how == UNMAPPED ? object : -object;
	}
	return space->changed(space->arg, &origin->mapper, &change);
}

/* Takes the ranges out, split at the ends. *ret: those, by address. */
static int cut(struct address_space *space, uint64_t start, uint64_t end, struct range **ret)
{
	struct range *range, *next, **tail = ret;
	int err = split(space, start);

	*ret = NULL;
	if (!err)
		err = split(space, end);
	if (err)
		return err;
	for (range = find(space, start); range && range->start < end && !err; range = next) {
		next = RB_NEXT(range_tree, NULL, range);
		RB_REMOVE(range_tree, &space->ranges, range);
		range->next = NULL;
		*tail = range;
		tail = &range->next;
		err = tell(space, range, UNMAPPED);
	}
	return err;
}

int address_space_remove(struct address_space *space, uint64_t start, uint64_t size)
{
	struct range *ranges;
	int err = cut(space, start, start + size, &ranges);

	ranges_free(ranges);
	return err;
}

static struct origin *origin_new(const struct mapper *mapper)
{
	struct origin *origin = calloc(1, sizeof(*origin));

	if (origin)
		origin->mapper = *mapper;
	return origin;
}

/* Where nothing is. Takes over what is passed, even if it fails. */
static int put(struct address_space *space, struct range *range, enum passage how)
{
	if (!range)
		return -ENOMEM;
	insert(space, range);
	return tell(space, range, how);
}

int address_space_add(struct address_space *space, uint64_t start, uint64_t size,
		      const struct mapper *mapper)
{
	struct origin *origin = NULL;
	struct range *range;
	int err = address_space_remove(space, start, size);

	if (err)
		return err;
	if (mapper) {
		origin = origin_new(mapper);
		if (!origin)
			return -ENOMEM;
	}
	range = range_new(origin, start, start + size, false);
	if (!range)
		free(origin);
	return put(space, range, MAPPED);
}

static struct taken *find_taken(struct address_space *space, uint32_t tid)
{
	struct taken *taken;

	HASH_FIND(hh, space->taken, &tid, sizeof(tid), taken);
	return taken;
}

int address_space_take(struct address_space *space, uint32_t tid, uint64_t start, uint64_t size)
{
	struct taken *taken = find_taken(space, tid);

	if (taken)
		taken_free(space, taken);
	else if (HASH_COUNT(space->taken) >= MAX_TAKEN)
		taken_free(space, space->taken); /* the oldest */
	taken = calloc(1, sizeof(*taken));
	if (!taken)
		return -ENOMEM;
	taken->tid = tid;
	HASH_ADD(hh, space->taken, tid, sizeof(taken->tid), taken);
	if (!taken->hh.tbl) {
		free(taken);
		return -ENOMEM;
	}
	taken->start = start;
	taken->size = size;
	return cut(space, start, start + size, &taken->ranges);
}

/* Puts a range back as it was, as if it had never been taken. */
static int restore(struct address_space *space, struct range *range)
{
	int err = address_space_remove(space, range->start, range->end - range->start);

	if (err) {
		range_free(range);
		return err;
	}
	return put(space, range, TAKEN_BACK);
}

int address_space_take_back(struct address_space *space, uint32_t tid)
{
	struct taken *taken = find_taken(space, tid);
	struct range *range, *next;
	int err = 0;

	if (!taken)
		return -ENOENT;
	range = taken->ranges;
	taken->ranges = NULL;
	for (; range && !err; range = next) {
		next = range->next;
		err = restore(space, range);
		if (err)
			ranges_free(next);
	}
	taken_free(space, taken);
	return err;
}

struct move {
	struct address_space *space;
	uint64_t start; /* where to */
	uint64_t size;
	bool anonymous;
	struct origin *origin; /* of what becomes the mapper's */
};

/* A part of the new place, by offset. */
static int move_part(struct move *move, uint64_t from, uint64_t to, bool known, bool reserved)
{
	if (to > move->size)
		to = move->size;
	if (from >= to)
		return 0;
	return put(move->space,
		   range_new(known ? move->origin : NULL, move->start + from, move->start + to,
			     reserved),
		   MAPPED);
}

static int move_parts(struct move *move, const struct taken *taken)
{
	uint64_t done = 0, old = taken->size;
	int err = 0;

	for (const struct range *range = taken->ranges; range && !err; range = range->next) {
		uint64_t from = range->start - taken->start, to = range->end - taken->start;

		/* Between what is known lies what was not: nobody's. */
		if (move->anonymous && from > done)
			err = move_part(move, done, from, false, false);
		if (!err)
			err = move_part(move, from, to, range->origin != NULL, range->reserved);
		done = to;
	}
	if (!err && move->anonymous && done < old)
		err = move_part(move, done, old, false, false);
	if (!err && move->anonymous && move->size > old)
		err = move_part(move, old, move->size, true, false);
	return err;
}

int address_space_move(struct address_space *space, uint32_t tid, uint64_t start, uint64_t size,
		       bool anonymous, const struct mapper *mapper)
{
	struct taken *taken = find_taken(space, tid);
	struct move move = {space, start, size, anonymous, NULL};
	int err;

	if (!taken)
		return -ENOENT;
	err = address_space_remove(space, start, size);
	if (!err) {
		move.origin = origin_new(mapper);
		err = move.origin ? 0 : -ENOMEM;
	}
	if (!err) {
		move.origin->users++;
		err = move_parts(&move, taken);
		if (!--move.origin->users)
			free(move.origin);
	}
	taken_free(space, taken);
	return err;
}

int address_space_reserve(struct address_space *space, uint64_t start, uint64_t size, bool reserved)
{
	struct range *range;
	int err = split(space, start);

	if (!err)
		err = split(space, start + size);
	for (range = find(space, start); range && range->start < start + size && !err;
	     range = RB_NEXT(range_tree, NULL, range)) {
		int64_t bytes = range->end - range->start;
		struct mapped_change change = {.reserved = reserved ? bytes : -bytes};

		if (range->reserved == reserved)
			continue;
		range->reserved = reserved;
		if (range->origin)
			err = space->changed(space->arg, &range->origin->mapper, &change);
	}
	return err;
}

bool address_space_gap(const struct address_space *space, uint64_t start, uint64_t end,
		       uint64_t *ret_start, uint64_t *ret_end)
{
	const struct range *range = find(space, start);

	while (range && range->start <= start) {
		start = range->end;
		range = RB_NEXT(range_tree, NULL, (struct range *)range);
	}
	if (start >= end)
		return false;
	*ret_start = start;
	*ret_end = range && range->start < end ? range->start : end;
	return true;
}

uint64_t address_space_bytes(const struct address_space *space)
{
	uint64_t bytes = 0;
	struct range *range;

	RB_FOREACH(range, range_tree, (struct range_tree *)&space->ranges)
	bytes += range->origin ? range->end - range->start : 0;
	return bytes;
}
