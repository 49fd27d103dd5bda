/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The function symbols of an image, of .symtab, .dynsym and its separate symbol files together. */
#ifndef HEAPTAP_ELF_SYMTAB_H
#define HEAPTAP_ELF_SYMTAB_H

#include <stdbool.h>
#include <stdint.h>

#include "elf/image.h"

struct symtab;

struct symbol {
	const char *name; /* raw, without version; owned by the symtab */
	uint64_t start;	  /* virtual address */
	uint64_t size;	  /* 0 if the file does not say */
	bool ifunc;	  /* start is its resolver, not the function itself */
};

/* Errors: -ENOENT if the image has no function symbols, -ENOMEM, -ENOEXEC for broken tables. */
int symtab_load(struct image *image, struct symtab **ret);

/*
 * Loads what can name code: also the .symtab of each of `others`, which hold symbols of the same
 * image (its separate debug file, its MiniDebugInfo), assembly labels where no function is, and the
 * PLT's stubs as "function@plt". Of equal symbols the image's .symtab comes first, then others in
 * their order, then .dynsym. A damaged table is left out. symtab_find() finds nothing in it. Errors
 * as above.
 */
int symtab_load_names(struct image *image, struct image *const *others, size_t other_count,
		      struct symtab **ret);
void symtab_free(struct symtab *symtab);
DEFINE_CLEANUP(symtab, struct symtab *, symtab_free)

/*
 * The function that covers vaddr: global before weak before local, then the longest, then the
 * first in the file. Where only
 * symbols of size 0 lie below, the nearest such, if no other symbol begins in between.
 * Returns NULL if there is none. The result lives as long as the symtab.
 */
const struct symbol *symtab_lookup(const struct symtab *symtab, uint64_t vaddr);

/* Memory that the symtab takes. */
size_t symtab_bytes(const struct symtab *symtab);

/* A defined function of this name, the default version first; NULL if there is none. */
const struct symbol *symtab_find(const struct symtab *symtab, const char *name);

/*
 * Calls func for every symbol, by start and then by rank, until it returns nonzero; returns that.
 * Two symbols may have one start.
 */
int symtab_for_each(const struct symtab *symtab,
		    int (*func)(const struct symbol *symbol, void *context), void *context);

#endif
