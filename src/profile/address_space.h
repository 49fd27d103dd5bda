/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The anonymous memory of one process, as ranges with the site that mapped each.
 *
 * A mapping may be unmapped in parts, moved, replaced and given back: what a site has mapped is
 * known by ranges only. Everything is in bytes and whole pages; an object is one call that mapped
 * something, and is gone when its last page is.
 */
#ifndef HEAPTAP_PROFILE_ADDRESS_SPACE_H
#define HEAPTAP_PROFILE_ADDRESS_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/cleanup.h"

struct address_space;

/* Who mapped something. */
struct mapper {
	uint64_t stack_id;
	uint32_t thread;
};

/* A change of what a mapper has mapped. What is taken back was not unmapped after all: below 0. */
struct mapped_change {
	uint64_t mapped;
	int64_t unmapped;
	uint32_t mapped_objects;
	int32_t unmapped_objects;
	int64_t reserved; /* of what is mapped: without access, or given back to the kernel */
};

/* changed() returns 0 or a negative errno, which the call that led to it returns. */
int address_space_new(int (*changed)(void *arg, const struct mapper *mapper,
				     const struct mapped_change *change),
		      void *arg, struct address_space **ret);
/* Changes nothing more. */
void address_space_free(struct address_space *space);
DEFINE_CLEANUP(address_space, struct address_space *, address_space_free)

/*
 * In place of whatever is there. mapper NULL: it was there before anybody looked, and is nobody's.
 * Errors, here and below: -ENOMEM.
 */
int address_space_add(struct address_space *space, uint64_t start, uint64_t size,
		      const struct mapper *mapper);
int address_space_remove(struct address_space *space, uint64_t start, uint64_t size);
/*
 * Removes a range and keeps what it held until the thread's next one, for the two below. Until
 * then its bytes count as unmapped. The two return -ENOENT if it was not kept: too many threads
 * have taken something since.
 */
int address_space_take(struct address_space *space, uint32_t tid, uint64_t start, uint64_t size);
int address_space_take_back(struct address_space *space, uint32_t tid);
/*
 * Puts what a thread took to another place, in place of whatever is there, with another size. What
 * was known is the mapper's now; what was nobody's stays so. anonymous: so is what is not known,
 * and what has been added.
 */
int address_space_move(struct address_space *space, uint32_t tid, uint64_t start, uint64_t size,
		       bool anonymous, const struct mapper *mapper);
/* A range is without access, or its memory was given back; or that is over. */
int address_space_reserve(struct address_space *space, uint64_t start, uint64_t size,
			  bool reserved);
/* The first part of a range that is not known, not even as nobody's, if there is one. */
bool address_space_gap(const struct address_space *space, uint64_t start, uint64_t end,
		       uint64_t *ret_start, uint64_t *ret_end);

/* Bytes that mappers have mapped. */
uint64_t address_space_bytes(const struct address_space *space);

#endif
