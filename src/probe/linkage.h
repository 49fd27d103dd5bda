/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The files of one process taken together: which functions of the catalog each defines, and where
 * the pointers lead through which they call one another.
 */
#ifndef HEAPTAP_PROBE_LINKAGE_H
#define HEAPTAP_PROBE_LINKAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/functions.h"
#include "elf/image.h"
#include "probe/catalog.h"

struct linkage;

/* An address in one of the files. Modules are counted from 0 in the order they were added. */
struct place {
	uint32_t module;
	uint64_t vaddr;
};

/* An allocation function that a module defines. */
struct linked_function {
	const struct catalog_function *function;
	const char *name;    /* in the file, with any prefix; owned by the linkage */
	unsigned int family; /* see catalog_lookup() */
	uint64_t start;	     /* virtual address */
	uint64_t size;	     /* 0 if the file does not say */
	bool exported;	     /* other files find it by its name */
};

/* Of a module; the catalog's largest allocator has some 150. What comes after these is left out. */
#define LINKAGE_MAX_FUNCTIONS 4096

/* The module of a place that is known to be in none of them. */
#define LINKAGE_ELSEWHERE UINT32_MAX

/* The bias of a module that is not in memory yet. */
#define LINKAGE_NOT_LOADED UINT64_MAX

/*
 * memory_fd: the process's /proc/PID/mem, not owned, or -1 if it does not run yet. extra_prefix:
 * of allocation functions, copied, or NULL. Errors: -ENOMEM.
 */
int linkage_new(int memory_fd, const char *extra_prefix, struct linkage **ret);
void linkage_free(struct linkage *linkage);
DEFINE_CLEANUP(linkage, struct linkage *, linkage_free)

/*
 * Adds a file, the program first, then in the order in which the dynamic linker searches them. The
 * image is not owned. bias: what the process adds to the file's virtual addresses. Errors: -ENOMEM.
 */
int linkage_add(struct linkage *linkage, struct image *image, uint64_t bias);
/* Adds a function that the file's own symbols do not name, if the catalog has it. */
int linkage_add_function(struct linkage *linkage, uint32_t module, const char *name, uint64_t start,
			 uint64_t size);

size_t linkage_count(const struct linkage *linkage);
struct image *linkage_image(const struct linkage *linkage, uint32_t module);
bool linkage_is_loaded(const struct linkage *linkage, uint32_t module);
/* Whether it has more functions than LINKAGE_MAX_FUNCTIONS. */
bool linkage_is_truncated(const struct linkage *linkage, uint32_t module);
/* By address; several may share one. */
const struct linked_function *linkage_functions(const struct linkage *linkage, uint32_t module,
						size_t *ret_count);
/* Where C++ exceptions begin, if the module has that: _Unwind_RaiseException(). */
bool linkage_unwinder(const struct linkage *linkage, uint32_t module, uint64_t *ret_vaddr,
		      uint64_t *ret_size);
/*
 * Whether what the module throws begins where linkage_unwinder() says of it or of another module:
 * it imports what exceptions take. One that has an unwinder of its own without a name does not.
 */
bool linkage_has_known_unwinder(struct linkage *linkage, uint32_t module);
/* Whether code of the module may throw: it has tables for exceptions, or calls what throws. */
bool linkage_can_throw(struct linkage *linkage, uint32_t module);
const struct functions *linkage_starts(struct linkage *linkage, uint32_t module);

/* The name by which the dynamic linker fills the word at an address, or NULL. */
const char *linkage_slot_name(struct linkage *linkage, struct place slot);
/*
 * Where a jump through the word at an address leads: what the process has there, or the definition
 * that the dynamic linker will find, or what the file puts there. False if that is not known.
 */
bool linkage_follow(struct linkage *linkage, struct place slot, struct place *ret);
/* Whether the module imports a function of this name. */
bool linkage_imports(struct linkage *linkage, uint32_t module, const char *name);
/* Whether it looks functions up while it runs: by dlsym() or dlvsym(). */
bool linkage_looks_up(struct linkage *linkage, uint32_t module);

#endif
