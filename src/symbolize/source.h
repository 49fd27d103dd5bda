/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the names of one image come from: its own symbol tables and DWARF, its separate debug file,
 * its MiniDebugInfo. All are opened when they are first needed.
 */
#ifndef HEAPTAP_SYMBOLIZE_SOURCE_H
#define HEAPTAP_SYMBOLIZE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/debuginfo.h"
#include "elf/image.h"
#include "elf/symtab.h"
#include "symbolize/lines.h"

struct source;

/* What all images share. */
struct source_context {
	struct debuginfo *debuginfo;
	int root_fd;	/* the target's, or -1 */
	bool use_lines; /* DWARF is read */
};

/* The image is not owned and must outlive the source. Returns 0 or -ENOMEM. */
int source_new(struct image *image, struct source **ret);
void source_free(struct source *source);
DEFINE_CLEANUP(source, struct source *, source_free)

/* The symbol at an address, NULL if none is known, valid until source_forget(). */
int source_symbol(struct source *source, const struct source_context *context, uint64_t vaddr,
		  const struct symbol **ret);

/* As lines_lookup(), with *ret_count 0 also where there is no DWARF. */
int source_lines(struct source *source, const struct source_context *context, uint64_t vaddr,
		 const struct line_frame **ret, size_t *ret_count);

/* Gives the tables' memory back; they are read again when a name is asked for. */
void source_forget(struct source *source);
size_t source_bytes(const struct source *source);

bool source_has_debug_file(const struct source *source);
bool source_has_lines(const struct source *source);

#endif
