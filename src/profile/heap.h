/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The heap as known so far: for every site the sums over all drained epochs, and the stacks the
 * sites stand on.
 */
#ifndef HEAPTAP_PROFILE_HEAP_H
#define HEAPTAP_PROFILE_HEAP_H

#include <stdbool.h>
#include <uthash.h>

#include "heaptap/site.h"
#include "heaptap/stack.h"
#include "util/cleanup.h"

/* Sums of weights, in the fixed point of struct weight, wide enough for years. */
struct heap_sum {
	unsigned __int128 bytes;
	unsigned __int128 objects;
	unsigned __int128 variance;
};

struct heap_stack {
	uint64_t id;
	uint64_t *frames; /* leaf first */
	size_t count;
	uint32_t serial; /* of the process if a frame is a raw address */
	enum stack_stop stop;
	bool guessed; /* a step went by frame pointer through code without rows */
	bool lost;    /* no frames: the stack could not be stored or read */
	bool left;    /* told by heap_leave_stacks() */
	UT_hash_handle hh;
};

struct heap_site {
	struct {
		uint64_t stack_id;
		uint32_t serial;
		uint16_t thread;  /* the number of its name, see profile/threads.h */
		uint16_t account; /* enum account */
	} key;
	const struct heap_stack *stack;
	struct heap_sum alloc;
	struct heap_sum freed;
	struct heap_sum inherited; /* in use when the process was forked */
	uint64_t reserved;	   /* bytes of what is in use, if mapped: address space only */
	UT_hash_handle hh;
};

struct heap;
struct mapped_change; /* see profile/address_space.h */

/*
 * read_chunk fetches a chunk of a stack: 0 or a negative errno. It is called once per chunk and
 * stack.
 */
int heap_new(int (*read_chunk)(void *arg, uint64_t id, struct stack_chunk *ret), void *arg,
	     struct heap **ret);
void heap_free(struct heap *heap);
DEFINE_CLEANUP(heap, struct heap *, heap_free)

/* Adds the counters of one site and epoch. Returns 0 or -ENOMEM, then nothing was added. */
int heap_add(struct heap *heap, const struct site_key *key, const struct site_counters *counters);

/* The same for a change of a site of mappings. */
int heap_add_mapped(struct heap *heap, const struct site_key *key,
		    const struct mapped_change *change);

/* Adds what a process that was forked had in use then, by its parent's stack. As heap_add(). */
int heap_inherit(struct heap *heap, uint32_t serial, uint64_t stack_id,
		 const struct weight *weight);

/* What is in use of a site. */
static inline struct heap_sum heap_inuse(const struct heap_site *site)
{
	return (struct heap_sum){
		.bytes = site->alloc.bytes + site->inherited.bytes - site->freed.bytes,
		.objects = site->alloc.objects + site->inherited.objects - site->freed.objects,
		.variance = site->alloc.variance + site->inherited.variance - site->freed.variance,
	};
}

/* The processes whose serials end() names have left: nothing of theirs is in use any more. */
void heap_end(struct heap *heap, bool (*end)(void *arg, uint32_t serial), void *arg);
/*
 * Calls left() for each stack that only a process could have whose serial end() names, as there are
 * raw addresses in it: its chunks are not read again. Each is told once.
 */
void heap_leave_stacks(struct heap *heap, bool (*end)(void *arg, uint32_t serial), void *end_arg,
		       void (*left)(void *arg, uint64_t id), void *left_arg);
/*
 * Adds sites up under other serials, to bound them: into() gives each serial's, or itself. Threads
 * of different names stay apart.
 * Returns 0 or -ENOMEM, then some are added up.
 */
int heap_merge(struct heap *heap, uint32_t (*into)(void *arg, uint32_t serial), void *arg);

/* All sites, linked by hh.next. NULL if there are none. */
const struct heap_site *heap_sites(const struct heap *heap);
size_t heap_site_count(const struct heap *heap);

/*
 * The sums as they are now, for a reader in another thread while the heap goes on. The copy refers
 * to the stacks of the heap, which must outlive it; nothing can be added to it.
 */
int heap_copy(const struct heap *heap, struct heap **ret);

/*
 * Divides a copy's sites into count parts: part() gives the index of each serial's, or count for
 * none. From then on they are in the parts and no more in the copy, which owns them: a part is a
 * heap to be read, as long as the copy lives. Returns 0 or -ENOMEM, then nothing has changed.
 */
int heap_divide(struct heap *copy, size_t count, size_t (*part)(void *arg, uint32_t serial),
		void *arg);
const struct heap *heap_part(const struct heap *copy, size_t index);

#endif
