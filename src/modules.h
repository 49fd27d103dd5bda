/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The files of one process, while probe points are searched in the new ones. Of those that are
 * known, only the ones with allocation functions, or where exceptions begin, are among them.
 */
#ifndef HEAPTAP_MODULES_H
#define HEAPTAP_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "new_files.h"

/* A file that matters to those that come later: they may call its functions, or be called. */
struct allocator_file {
	struct image *image; /* a handle of our own */
	__u32 id;
	bool throw_probed; /* exceptions that begin in it are let through */
};

struct allocator_files {
	struct allocator_file *entries;
	size_t count;
};

struct module {
	struct image *image; /* not owned */
	__u32 id;
	bool is_new;
	uint64_t bias;
	uint64_t start; /* of its first mapping; UINT64_MAX: the program */
};

/* The program first, then in the order in which the dynamic linker searches them, mostly. */
struct modules {
	struct module *entries;
	size_t count;
};

/* What these print, they return; only -ENOMEM. */
int modules_of_process(pid_t pid, const struct maps *maps, const struct known_files *known,
		       const struct new_files *files, const struct allocator_files *others,
		       struct modules *ret);
int modules_of_command(const struct new_files *files, struct modules *ret);
void modules_fini(struct modules *modules);

static inline void cleanup_modules(struct modules *modules)
{
	modules_fini(modules);
}

/* Keeps a file. */
int allocator_files_add(struct allocator_files *files, const struct module *module);
struct allocator_file *allocator_files_find(const struct allocator_files *files, __u32 id);
/* Gives the memory back that their contents take. */
void allocator_files_forget(struct allocator_files *files);
void allocator_files_fini(struct allocator_files *files);

#endif
