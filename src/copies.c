/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies are made in rounds. A round reads the live table, in which the records of a parent are
 * that it had at the fork and has still, waits until no program can be about to keep one it has
 * taken out, and reads those that were kept. A child whose parent is a child of the same round
 * waits for the next one, when the parent has its copies itself.
 *
 * A copy counts from the epoch of the fork, and its free from its own: so the loader must not drain
 * that epoch before the copies are made.
 */
#define HASH_NONFATAL_OOM 1

#include "copies.h"

#include <errno.h>
#include <string.h>
#include <uthash.h>

#include "kernel_maps.h"

/* A record that a parent had. */
struct source {
	uint64_t address;
	struct live_record record;
	uint32_t serial;
	uint32_t died;	/* fork clock; of those that were kept */
	uint32_t taken; /* the last fork that it was copied for, likewise */
	uint32_t pad;
};

struct sources {
	struct source *list;
	size_t count;
	size_t capacity;
};

/* A child. */
struct fork {
	uint32_t serial;
	uint32_t parent;
	uint32_t clock;
	uint32_t epoch;
	bool ready; /* its parent has all of its own records */
	bool done;
};

/* What one child has inherited of one stack. */
struct inherited {
	uint64_t stack_id;
	struct weight weight;
	uint32_t serial;
	uint32_t epoch;
	/* Copied after that epoch was closed, and those of them that were freed before it was. */
	uint64_t late_bytes;
	uint64_t late_freed_bytes;
	struct inherited *next;
	UT_hash_handle hh; /* while its child's copies are made */
};

struct copies {
	struct kernel *kernel;
	struct copy_maps maps;
	bool split;
	struct inherited *inherited; /* not told to the heap yet */
	uint32_t known;		     /* forks up to this clock have been seen or are among these: */
	struct fork *forks;	     /* of a round */
	size_t count;
	size_t capacity;
};

/* While a round goes on. */
struct round {
	struct copies *copies;
	uint32_t *parents; /* of those that are ready, in order */
	size_t parent_count;
	struct sources live;
	struct sources kept; /* by serial and address */
};

static void cleanup_round(struct round *round)
{
	free(round->parents);
	free(round->live.list);
	free(round->kept.list);
}

int copies_new(struct kernel *kernel, bool split, struct copies **ret)
{
	struct copies *copies = calloc(1, sizeof(*copies));

	if (!copies)
		return -ENOMEM;
	copies->kernel = kernel;
	copies->maps = kernel_copy_maps(kernel);
	copies->split = split;
	*ret = copies;
	return 0;
}

void copies_free(struct copies *copies)
{
	struct inherited *next;

	if (!copies)
		return;
	for (struct inherited *one = copies->inherited; one; one = next) {
		next = one->next;
		free(one);
	}
	free(copies->forks);
	free(copies);
}

static int note_fork(void *arg, __u32 serial, const struct process_info *info)
{
	struct copies *copies = arg;

	if (!info->fork)
		return 0;
	if (copies->count == copies->capacity) {
		size_t capacity = 2 * copies->capacity + 16;
		struct fork *forks = reallocarray(copies->forks, capacity, sizeof(*forks));

		if (!forks)
			return -ENOMEM;
		copies->forks = forks;
		copies->capacity = capacity;
	}
	copies->forks[copies->count++] = (struct fork){
		.serial = serial,
		.parent = info->parent,
		.clock = info->fork,
		.epoch = info->fork_epoch,
	};
	return 0;
}

/* Whether any snapshot can show what the child has inherited, or it has handed it on. */
static bool is_wanted(const struct copies *copies, const struct fork *fork)
{
	struct process_info info;

	if (!kernel_copies_process(&copies->maps, fork->serial, &info))
		return false;
	return !info.gone || info.copies || fork->epoch != *copies->maps.epoch ||
	       (info.gone == PROCESS_EXITED && (info.last || copies->split));
}

static int by_serial(const void *a, const void *b)
{
	const uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;

	return one < other ? -1 : one > other;
}

static bool is_due(const struct copies *copies, uint32_t serial)
{
	for (size_t i = 0; i < copies->count; i++)
		if (copies->forks[i].serial == serial)
			return !copies->forks[i].done;
	return false;
}

/* Finds out who is ready. */
static int find_parents(struct round *round)
{
	struct copies *copies = round->copies;

	round->parents = calloc(copies->count + 1, sizeof(*round->parents));
	if (!round->parents)
		return -ENOMEM;
	for (size_t i = 0; i < copies->count; i++) {
		struct fork *fork = &copies->forks[i];

		fork->ready = !fork->done && !is_due(copies, fork->parent);
		if (fork->ready)
			round->parents[round->parent_count++] = fork->parent;
	}
	qsort(round->parents, round->parent_count, sizeof(*round->parents), by_serial);
	return 0;
}

static bool is_parent(const struct round *round, uint32_t serial)
{
	return bsearch(&serial, round->parents, round->parent_count, sizeof(serial), by_serial);
}

static int add_source(struct sources *sources, const struct source *source)
{
	if (sources->count == sources->capacity) {
		size_t capacity = 2 * sources->capacity + 1024;
		struct source *list = reallocarray(sources->list, capacity, sizeof(*list));

		if (!list)
			return -ENOMEM;
		sources->list = list;
		sources->capacity = capacity;
	}
	sources->list[sources->count++] = *source;
	return 0;
}

static int see_live(void *arg, const void *key, const void *value)
{
	struct round *round = arg;
	const struct live_key *live = key;
	struct source source = {.address = live->address, .serial = live->serial};

	if (!is_parent(round, live->serial))
		return 0;
	memcpy(&source.record, value, sizeof(source.record));
	return add_source(&round->live, &source);
}

static int see_kept(void *arg, const void *key, const void *value)
{
	struct round *round = arg;
	const struct fork_kept_key *kept = key;
	struct source source = {
		.address = kept->address,
		.serial = kept->serial,
		.died = kept->died,
	};

	memcpy(&source.record, value, sizeof(source.record));
	return add_source(&round->kept, &source);
}

static int by_address(const void *a, const void *b)
{
	const struct source *one = a, *other = b;

	if (one->serial != other->serial)
		return one->serial < other->serial ? -1 : 1;
	if (one->address != other->address)
		return one->address < other->address ? -1 : 1;
	return 0;
}

/* The first of those that were kept at an address, or where it would be. */
static size_t find_kept(const struct sources *kept, const struct source *source)
{
	size_t low = 0, high = kept->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (by_address(&kept->list[middle], source) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool lived_at(const struct source *kept, const struct fork *fork)
{
	return kept->serial == fork->parent && kept->record.born < fork->clock &&
	       fork->clock <= kept->died;
}

/* It may have been read twice: before it died and after, or because a realloc of it failed. */
static void mark_taken(struct sources *kept, const struct source *source, const struct fork *fork)
{
	for (size_t i = find_kept(kept, source);
	     i < kept->count && !by_address(&kept->list[i], source); i++)
		if (lived_at(&kept->list[i], fork))
			kept->list[i].taken = fork->clock;
}

/* What a child is given, stack by stack. */
struct gift {
	struct copies *copies;
	const struct fork *fork;
	struct inherited *stacks;
};

static int count_copy(struct gift *gift, const struct fork_entry *entry, bool late)
{
	const struct live_record *record = &entry->record;
	struct inherited *known;

	HASH_FIND(hh, gift->stacks, &record->stack_id, sizeof(record->stack_id), known);
	if (!known) {
		known = calloc(1, sizeof(*known));
		if (!known)
			return -ENOMEM;
		known->stack_id = record->stack_id;
		known->serial = gift->fork->serial;
		known->epoch = gift->fork->epoch;
		HASH_ADD(hh, gift->stacks, stack_id, sizeof(known->stack_id), known);
		if (!known->hh.tbl) {
			free(known);
			return -ENOMEM;
		}
	}
	known->weight.bytes += record->weight.bytes;
	known->weight.objects += record->weight.objects;
	known->weight.variance += record->weight.variance;
	if (late)
		known->late_bytes += record->weight.bytes;
	if (late && entry->freed == known->epoch)
		known->late_freed_bytes += record->weight.bytes;
	return 0;
}

/* Has the copies of the batch made. */
static int give(struct gift *gift, bool done)
{
	struct copy_maps *maps = &gift->copies->maps;
	struct fork_batch *batch = maps->batch;
	bool late = *maps->epoch != gift->fork->epoch;
	int err;

	batch->serial = gift->fork->serial;
	batch->done = done;
	err = kernel_copies_make(maps);
	for (size_t i = 0; i < batch->count && !err; i++)
		if (!batch->entries[i].refused)
			err = count_copy(gift, &batch->entries[i], late);
	batch->count = 0;
	return err;
}

static int add_to_batch(struct gift *gift, const struct source *source)
{
	struct fork_batch *batch = gift->copies->maps.batch;

	batch->entries[batch->count++] = (struct fork_entry){
		.address = source->address,
		.record = source->record,
		/* Unless the program says otherwise. */
		.refused = 1,
	};
	return batch->count == FORK_BATCH ? give(gift, false) : 0;
}

static int give_all(struct round *round, struct gift *gift)
{
	const struct fork *fork = gift->fork;
	struct sources *live = &round->live, *kept = &round->kept;
	int err = 0;

	for (size_t i = 0; i < live->count && !err; i++) {
		const struct source *source = &live->list[i];

		if (source->serial != fork->parent || source->record.born >= fork->clock)
			continue;
		mark_taken(kept, source, fork);
		err = add_to_batch(gift, source);
	}
	for (size_t i = 0; i < kept->count && !err; i++) {
		struct source *source = &kept->list[i];

		if (!lived_at(source, fork) || source->taken == fork->clock)
			continue;
		mark_taken(kept, source, fork);
		err = add_to_batch(gift, source);
	}
	return err;
}

/* Makes all copies of one child, or none if it does not need them, and ends it. */
static int copy_fork(struct round *round, struct fork *fork, bool wanted)
{
	struct gift gift = {round->copies, fork, NULL};
	struct inherited *one, *next;
	int err = wanted ? give_all(round, &gift) : 0, end_err;

	end_err = give(&gift, true);
	fork->done = true;
	HASH_ITER (hh, gift.stacks, one, next) {
		HASH_DEL(gift.stacks, one);
		one->next = round->copies->inherited;
		round->copies->inherited = one;
	}
	return err ? err : end_err;
}

static bool is_needed(void *arg, const struct fork_kept_key *key, const struct live_record *record)
{
	const struct copies *copies = arg;
	const struct source source = {
		.serial = key->serial,
		.died = key->died,
		.record.born = record->born,
	};
	struct process_info info;

	for (size_t i = 0; i < copies->count; i++)
		if (!copies->forks[i].done && lived_at(&source, &copies->forks[i]))
			return true;
	/* A fork that is not among these yet. */
	return key->died > copies->known &&
	       kernel_copies_process(&copies->maps, key->serial, &info) && info.copies;
}

/* Reads what the parents had that are in this round. */
static int read_sources(struct round *round)
{
	const struct copy_maps *maps = &round->copies->maps;
	int err = kernel_copies_live(maps, see_live, round);

	kernel_wait_for_programs();
	if (!err)
		err = kernel_copies_kept(maps, see_kept, round);
	if (!err && round->kept.count)
		qsort(round->kept.list, round->kept.count, sizeof(*round->kept.list), by_address);
	return err;
}

static int make_round(struct copies *copies)
{
	struct round round CLEANUP(round) = {.copies = copies};
	uint32_t clock = *copies->maps.clock;
	int err;

	copies->count = 0;
	err = kernel_read_processes(copies->kernel, note_fork, copies);
	for (size_t i = 0; i < copies->count && !err; i++)
		if (!is_wanted(copies, &copies->forks[i]))
			err = copy_fork(&round, &copies->forks[i], false);
	if (!err)
		err = find_parents(&round);
	if (!err && round.parent_count)
		err = read_sources(&round);
	for (size_t i = 0; i < copies->count && !err; i++)
		if (copies->forks[i].ready)
			err = copy_fork(&round, &copies->forks[i],
					is_wanted(copies, &copies->forks[i]));
	if (!err)
		err = kernel_copies_clean_kept(&copies->maps, is_needed, copies);
	if (!err)
		err = kernel_copies_clean_frees(&copies->maps);
	/* Who forked before the wait has a serial now: the next round will see all of them. */
	if (round.parent_count)
		copies->known = clock;
	return err;
}

int copies_make(struct copies *copies)
{
	uint32_t clock = *copies->maps.clock;
	bool any = kernel_copies_due(&copies->maps);
	int err = 0;

	/* Who forks from now on can wait: there may be no end to it. */
	while (!err && any) {
		err = make_round(copies);
		any = false;
		for (size_t i = 0; i < copies->count; i++)
			any |= !copies->forks[i].done && copies->forks[i].clock <= clock;
	}
	return err;
}

int copies_inherit(struct copies *copies, struct heap *heap, struct epoch_record *record)
{
	struct inherited **link = &copies->inherited, *one;
	int err;

	while ((one = *link)) {
		if (one->epoch > record->epoch) {
			link = &one->next;
			continue;
		}
		err = heap_inherit(heap, one->serial, one->stack_id, &one->weight);
		if (err)
			return err;
		record->totals.inherited_bytes += one->late_bytes;
		record->totals.freed_bytes += one->late_freed_bytes;
		*link = one->next;
		free(one);
	}
	return 0;
}
