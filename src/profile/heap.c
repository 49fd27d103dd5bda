/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "profile/address_space.h"
#include "profile/heap.h"

struct heap {
	int (*read_chunk)(void *arg, uint64_t id, struct stack_chunk *ret);
	void *arg;
	struct heap_stack *stacks;
	struct heap_site *sites;
	struct heap_site *copies; /* of a copy: all sites in one block */
	struct heap *parts;	  /* of a copy that is divided */
};

int heap_new(int (*read_chunk)(void *arg, uint64_t id, struct stack_chunk *ret), void *arg,
	     struct heap **ret)
{
	struct heap *heap = calloc(1, sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	heap->read_chunk = read_chunk;
	heap->arg = arg;
	*ret = heap;
	return 0;
}

static void stack_free(struct heap_stack *stack)
{
	if (!stack)
		return;
	free(stack->frames);
	free(stack);
}
DEFINE_CLEANUP(stack, struct heap_stack *, stack_free)

void heap_free(struct heap *heap)
{
	struct heap_stack *stack, *next_stack;
	struct heap_site *site, *next_site;

	if (!heap)
		return;
	if (heap->copies) {
		free(heap->copies);
		free(heap->parts);
		free(heap);
		return;
	}
	HASH_ITER (hh, heap->sites, site, next_site) {
		HASH_DEL(heap->sites, site);
		free(site);
	}
	HASH_ITER (hh, heap->stacks, stack, next_stack) {
		HASH_DEL(heap->stacks, stack);
		stack_free(stack);
	}
	free(heap);
}

/* Reads the chunks from the leaf to the root. A chain that is broken or too long is a lost stack.
 */
static int read_frames(struct heap *heap, struct heap_stack *stack)
{
	uint64_t frames[STACK_MAX_FRAMES];
	struct stack_chunk chunk;
	uint64_t id = stack->id;
	size_t count = 0;

	stack->lost = true;
	while (id != STACK_ID_LOST) {
		if (heap->read_chunk(heap->arg, id, &chunk))
			return 0;
		if (chunk.count > STACK_CHUNK_FRAMES || count + chunk.count > STACK_MAX_FRAMES ||
		    !chunk.count || chunk.stop >= STOP_COUNT)
			return 0;
		memcpy(frames + count, chunk.frames, chunk.count * sizeof(*frames));
		count += chunk.count;
		stack->serial = chunk.serial;
		stack->stop = chunk.stop;
		stack->guessed = chunk.flags & STACK_GUESSED;
		id = chunk.parent;
	}
	if (!count)
		return 0;
	stack->frames = malloc(count * sizeof(*frames));
	if (!stack->frames)
		return -ENOMEM;
	memcpy(stack->frames, frames, count * sizeof(*frames));
	stack->count = count;
	stack->lost = false;
	return 0;
}

static int find_stack(struct heap *heap, uint64_t id, const struct heap_stack **ret)
{
	struct heap_stack *stack CLEANUP(stack) = NULL;
	struct heap_stack *known;
	int err;

	HASH_FIND(hh, heap->stacks, &id, sizeof(id), known);
	if (!known) {
		stack = calloc(1, sizeof(*stack));
		if (!stack)
			return -ENOMEM;
		stack->id = id;
		err = read_frames(heap, stack);
		if (err)
			return err;
		HASH_ADD(hh, heap->stacks, id, sizeof(stack->id), stack);
		if (!stack->hh.tbl) /* uthash ran out of memory */
			return -ENOMEM;
		known = take_ptr(stack);
	}
	*ret = known;
	return 0;
}

static void sum_add(struct heap_sum *sum, const struct weight_sum *weight)
{
	sum->bytes += weight->bytes;
	sum->objects += weight->objects;
	sum->variance += weight->variance;
}

static int find_site(struct heap *heap, const struct site_key *key, struct heap_site **ret)
{
	_cleanup_free_ struct heap_site *site = NULL;
	const struct heap_site wanted = {
		.key = {key->stack_id, key->serial, key->thread, key->account}};
	struct heap_site *known;
	int err;

	HASH_FIND(hh, heap->sites, &wanted.key, sizeof(wanted.key), known);
	if (!known) {
		site = malloc(sizeof(*site));
		if (!site)
			return -ENOMEM;
		*site = wanted;
		err = find_stack(heap, key->stack_id, &site->stack);
		if (err)
			return err;
		HASH_ADD(hh, heap->sites, key, sizeof(site->key), site);
		if (!site->hh.tbl)
			return -ENOMEM;
		known = take_ptr(site);
	}
	*ret = known;
	return 0;
}

int heap_add(struct heap *heap, const struct site_key *key, const struct site_counters *counters)
{
	struct heap_site *site;
	int err = find_site(heap, key, &site);

	if (err)
		return err;
	sum_add(&site->alloc, &counters->alloc);
	sum_add(&site->freed, &counters->freed);
	return 0;
}

/* A count of whole ones, which may be below 0, in fixed point. */
static __int128 fixed(__int128 count, unsigned int shift)
{
	return count * ((__int128)1 << shift);
}

int heap_add_mapped(struct heap *heap, const struct site_key *key,
		    const struct mapped_change *change)
{
	struct heap_site *site;
	int err = find_site(heap, key, &site);

	if (err)
		return err;
	site->alloc.bytes += fixed(change->mapped, WEIGHT_BYTES_SHIFT);
	site->alloc.objects += fixed(change->mapped_objects, WEIGHT_OBJECTS_SHIFT);
	site->freed.bytes += fixed(change->unmapped, WEIGHT_BYTES_SHIFT);
	site->freed.objects += fixed(change->unmapped_objects, WEIGHT_OBJECTS_SHIFT);
	site->reserved += change->reserved;
	return 0;
}

int heap_inherit(struct heap *heap, uint32_t serial, uint64_t stack_id, const struct weight *weight)
{
	const struct site_key key = {
		.serial = serial, .thread = weight->thread, .stack_id = stack_id};
	const struct weight_sum sum = {
		.bytes = weight->bytes, .objects = weight->objects, .variance = weight->variance};
	struct heap_site *site;
	int err = find_site(heap, &key, &site);

	if (!err)
		sum_add(&site->inherited, &sum);
	return err;
}

static void sums_add(struct heap_sum *sum, const struct heap_sum *more)
{
	sum->bytes += more->bytes;
	sum->objects += more->objects;
	sum->variance += more->variance;
}

void heap_end(struct heap *heap, bool (*end)(void *arg, uint32_t serial), void *arg)
{
	for (struct heap_site *site = heap->sites; site; site = site->hh.next) {
		if (!end(arg, site->key.serial))
			continue;
		site->freed = site->alloc;
		sums_add(&site->freed, &site->inherited);
		site->reserved = 0;
	}
}

void heap_leave_stacks(struct heap *heap, bool (*end)(void *arg, uint32_t serial), void *end_arg,
		       void (*left)(void *arg, uint64_t id), void *left_arg)
{
	for (struct heap_stack *stack = heap->stacks; stack; stack = stack->hh.next) {
		if (!stack->serial || stack->left || !end(end_arg, stack->serial))
			continue;
		stack->left = true;
		left(left_arg, stack->id);
	}
}

int heap_merge(struct heap *heap, uint32_t (*into)(void *arg, uint32_t serial), void *arg)
{
	struct heap_site *site, *next;

	HASH_ITER (hh, heap->sites, site, next) {
		uint32_t serial = into(arg, site->key.serial);
		struct heap_site *known;

		if (serial == site->key.serial)
			continue;
		HASH_DEL(heap->sites, site);
		site->key.serial = serial;
		HASH_FIND(hh, heap->sites, &site->key, sizeof(site->key), known);
		if (known) {
			sums_add(&known->alloc, &site->alloc);
			sums_add(&known->freed, &site->freed);
			sums_add(&known->inherited, &site->inherited);
			known->reserved += site->reserved;
			free(site);
			continue;
		}
		HASH_ADD(hh, heap->sites, key, sizeof(site->key), site);
		if (!site->hh.tbl) {
			free(site);
			return -ENOMEM;
		}
	}
	return 0;
}

const struct heap_site *heap_sites(const struct heap *heap)
{
	return heap->sites;
}

size_t heap_site_count(const struct heap *heap)
{
	size_t count = 0;

	for (const struct heap_site *site = heap->sites; site; site = site->hh.next)
		count++;
	return count;
}

int heap_copy(const struct heap *heap, struct heap **ret)
{
	struct heap *copy CLEANUP(heap) = calloc(1, sizeof(*copy));
	size_t count = HASH_COUNT(heap->sites), i = 0;

	if (!copy)
		return -ENOMEM;
	/* One more: a copy without sites is still told from a heap. */
	copy->copies = calloc(count + 1, sizeof(*copy->copies));
	if (!copy->copies)
		return -ENOMEM;
	for (const struct heap_site *site = heap->sites; site; site = site->hh.next) {
		copy->copies[i] = *site;
		copy->copies[i].hh.next = i + 1 < count ? &copy->copies[i + 1] : NULL;
		i++;
	}
	copy->sites = count ? copy->copies : NULL;
	*ret = take_ptr(copy);
	return 0;
}

int heap_divide(struct heap *copy, size_t count, size_t (*part)(void *arg, uint32_t serial),
		void *arg)
{
	_cleanup_free_ struct heap_site **last = calloc(count + 1, sizeof(struct heap_site *));
	struct heap *parts = calloc(count + 1, sizeof(*parts));
	struct heap_site *site, *next;

	if (!last || !parts) {
		free(parts);
		return -ENOMEM;
	}
	for (site = copy->sites; site; site = next) {
		size_t index = part(arg, site->key.serial);

		next = site->hh.next;
		site->hh.next = NULL;
		if (index >= count)
			continue;
		if (last[index])
			last[index]->hh.next = site;
		else
			parts[index].sites = site;
		last[index] = site;
	}
	copy->sites = NULL;
	copy->parts = parts;
	return 0;
}

const struct heap *heap_part(const struct heap *copy, size_t index)
{
	return &copy->parts[index];
}
