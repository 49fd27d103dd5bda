/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process had mapped when it was first seen is read from /proc/PID/maps, and is nobody's.
 * While it is read, changes go on and wait in the ring. They are applied to it afterwards, although
 * some are in it already: each says what is at a place from then on, so that the last one holds.
 */
#define HASH_NONFATAL_OOM 1

#include "mappings.h"

#include <errno.h>
#include <string.h>
#include <uthash.h>

#include "proc/maps.h"
#include "profile/address_space.h"

struct space {
	uint32_t serial;
	pid_t pid; /* of the process, or a thread of it */
	struct mappings *mappings;
	struct address_space *ranges;
	UT_hash_handle hh;
};

struct mappings {
	struct kernel *kernel;
	struct processes *processes;
	struct heap *heap;
	struct space *spaces;
	uint64_t bytes;
	uint64_t lost; /* events, as far as that is mended */
	bool unsure;   /* what an event was about is not known any more */
};

int mappings_new(struct kernel *kernel, struct processes *processes, struct heap *heap,
		 struct mappings **ret)
{
	struct mappings *mappings = calloc(1, sizeof(*mappings));

	if (!mappings)
		return -ENOMEM;
	mappings->kernel = kernel;
	mappings->processes = processes;
	mappings->heap = heap;
	*ret = mappings;
	return 0;
}

static void space_free(struct mappings *mappings, struct space *space)
{
	HASH_DEL(mappings->spaces, space);
	address_space_free(space->ranges);
	free(space);
}

void mappings_free(struct mappings *mappings)
{
	struct space *space, *next;

	if (!mappings)
		return;
	HASH_ITER (hh, mappings->spaces, space, next)
		space_free(mappings, space);
	free(mappings);
}

/* Into the heap. */
static int changed(void *arg, const struct mapper *mapper, const struct mapped_change *change)
{
	const struct space *space = arg;
	const struct site_key key = {
		.account = ACCOUNT_MAPPED,
		.thread = mapper->thread,
		.serial = space->serial,
		.stack_id = mapper->stack_id,
	};

	space->mappings->bytes += change->mapped - change->unmapped;
	return heap_add_mapped(space->mappings->heap, &key, change);
}

static bool is_anonymous(const struct mapping *mapping)
{
	static const char *const names[] = {"[heap]", "[anon", "/dev/zero"};

	if (!mapping->inode && !*mapping->path)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strncmp(mapping->path, names[i], strlen(names[i])))
			return true;
	return false;
}

static int read_before(struct space *space)
{
	struct maps *maps CLEANUP(maps) = NULL;
	int err = maps_read(space->pid, &maps);

	for (size_t i = 0; !err && i < maps->count; i++) {
		const struct mapping *mapping = &maps->entries[i];

		if (is_anonymous(mapping))
			err = address_space_add(space->ranges, mapping->start,
						mapping->end - mapping->start, NULL);
	}
	return err == -ENOMEM ? err : 0;
}

/* pid: of the process, or a thread of it. */
static int find_space(struct mappings *mappings, uint32_t serial, pid_t pid, struct space **ret)
{
	struct space *space;
	int err;

	HASH_FIND(hh, mappings->spaces, &serial, sizeof(serial), space);
	if (!space) {
		space = calloc(1, sizeof(*space));
		if (!space)
			return -ENOMEM;
		space->serial = serial;
		space->pid = pid;
		space->mappings = mappings;
		err = address_space_new(changed, space, &space->ranges);
		if (!err)
			HASH_ADD(hh, mappings->spaces, serial, sizeof(space->serial), space);
		if (err || !space->hh.tbl) {
			address_space_free(space->ranges);
			free(space);
			return -ENOMEM;
		}
		err = read_before(space);
		if (err)
			return err;
	}
	*ret = space;
	return 0;
}

static int apply_to(struct space *space, const struct mapping_event *event)
{
	const struct mapper mapper = {.stack_id = event->stack_id, .thread = event->thread};

	switch (event->change) {
	case MAPPING_ADD:
		return address_space_add(space->ranges, event->start, event->size, &mapper);
	case MAPPING_TAKE:
		return address_space_take(space->ranges, event->tid, event->start, event->size);
	case MAPPING_TAKE_BACK:
		return address_space_take_back(space->ranges, event->tid);
	case MAPPING_MOVE:
		return address_space_move(space->ranges, event->tid, event->start, event->size,
					  event->anonymous, &mapper);
	case MAPPING_REMOVE:
		return address_space_remove(space->ranges, event->start, event->size);
	case MAPPING_RESERVE:
	case MAPPING_USE:
		return address_space_reserve(space->ranges, event->start, event->size,
					     event->change == MAPPING_RESERVE);
	}
	return 0;
}

static int apply(void *arg, const struct mapping_event *event)
{
	struct mappings *mappings = arg;
	struct space *space;
	int err = find_space(mappings, event->serial, (pid_t)event->tid, &space);

	if (!err)
		err = apply_to(space, event);
	if (err != -ENOENT)
		return err;
	mappings->unsure = true;
	return 0;
}

/* The parts of an anonymous mapping that are not known belong to a stack that is not. */
static int mend_mapping(struct space *space, uint64_t start, uint64_t end)
{
	const struct mapper lost = {.stack_id = STACK_ID_LOST};
	uint64_t from, to;
	int err = 0;

	for (; !err && address_space_gap(space->ranges, start, end, &from, &to); start = to)
		err = address_space_add(space->ranges, from, to - from, &lost);
	return err;
}

/* A process' ranges as they really are. */
static int mend(struct space *space)
{
	struct maps *maps CLEANUP(maps) = NULL;
	uint64_t done = 0;
	int err = maps_read(space->pid, &maps);

	if (err)
		return err == -ENOMEM ? err : 0;
	for (size_t i = 0; !err && i < maps->count; i++) {
		const struct mapping *mapping = &maps->entries[i];

		if (!is_anonymous(mapping))
			continue;
		if (mapping->start > done)
			err = address_space_remove(space->ranges, done, mapping->start - done);
		if (!err)
			err = mend_mapping(space, mapping->start, mapping->end);
		done = mapping->end;
	}
	return err ? err : address_space_remove(space->ranges, done, UINT64_MAX - done);
}

static int mend_all(struct mappings *mappings)
{
	struct space *space, *next;
	int err = 0;

	HASH_ITER (hh, mappings->spaces, space, next) {
		size_t index;
		const struct snapshot_process *process =
			processes_find(mappings->processes, space->serial, &index);

		if (process && process->pid)
			space->pid = process->pid;
		err = err ? err : mend(space);
	}
	return err;
}

static uint64_t lost_events(const struct mappings *mappings)
{
	struct loss_counter losses[LOSS_COUNT] = {};

	if (kernel_read_losses(mappings->kernel, losses))
		return mappings->lost;
	return losses[LOSS_MAPPING_FULL].count + losses[LOSS_MAPPING_MISSED].count +
	       losses[LOSS_MAPPING_UNKNOWN].count;
}

int mappings_begin(struct mappings *mappings)
{
	size_t count;
	const struct snapshot_process *list = processes_list(mappings->processes, &count);
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		struct space *space;

		err = find_space(mappings, list[i].serial, list[i].pid, &space);
	}
	return err;
}

int mappings_update(struct mappings *mappings)
{
	uint64_t lost = lost_events(mappings);
	int err = kernel_consume_mappings(mappings->kernel, apply, mappings);

	if (!err && (lost != mappings->lost || mappings->unsure)) {
		err = mend_all(mappings);
		mappings->lost = lost;
		mappings->unsure = false;
	}
	return err;
}

void mappings_forget_gone(struct mappings *mappings)
{
	struct space *space, *next;

	HASH_ITER (hh, mappings->spaces, space, next) {
		struct process_life life;
		size_t index;

		if (!processes_find(mappings->processes, space->serial, &index))
			continue;
		life = processes_life(mappings->processes, index);
		if (!life.gone_ns || life.last)
			continue;
		mappings->bytes -= address_space_bytes(space->ranges);
		space_free(mappings, space);
	}
}

uint64_t mappings_bytes(const struct mappings *mappings)
{
	return mappings->bytes;
}
