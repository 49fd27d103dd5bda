/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pieces of a library's code and the code of an image: where one is in the other. */
#ifndef HEAPTAP_PROBE_MATCH_H
#define HEAPTAP_PROBE_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/archive.h"
#include "elf/code.h"
#include "elf/image.h"

/* All code of an image, in memory. */
struct match_text {
	struct match_segment {
		uint64_t vaddr;
		uint64_t size;
		uint8_t *bytes;
	} segments[CODE_MAX_SEGMENTS];
	size_t count;
	uint64_t bytes;
	uint64_t work; /* bytes compared so far: see match_search() */
};

/* Errors: -ENOENT if there is no code, -E2BIG past 1 GiB of it, -ENOEXEC, -ENOMEM. */
int match_text_read(struct image *image, struct match_text *ret);
void match_text_fini(struct match_text *text);

/* A section, or a function in it. */
struct match_piece {
	uint32_t section;
	uint32_t start; /* in the section */
	uint32_t size;
};

struct match_piece match_section(const struct archive *archive, uint32_t section);
struct match_piece match_function(const struct archive *archive, uint32_t function);

/* How many of the piece's bytes linkers leave alone. */
uint32_t match_fixed_bytes(const struct archive *archive, const struct match_piece *piece);

/*
 * The next reference from *index on that lies in the piece; NULL if there is none. *index starts
 * at 0.
 */
const struct archive_reference *match_next_reference(const struct archive *archive,
						     const struct match_piece *piece,
						     uint32_t *index);

enum match_likeness {
	MATCH_DIFFERENT,
	MATCH_ALIKE, /* the same bytes, but they refer to other things */
	MATCH_TWINS, /* the same code */
};

enum match_likeness match_compare(const struct archive *archive, const struct match_piece *a,
				  const struct match_piece *b);

/*
 * Calls func for each place where the bytes of the piece are, at an address that its alignment
 * allows, and all references of the piece to one thing lead to one address. base is the address
 * that the piece's section has there. Ends when func returns nonzero, and finds nothing more once
 * the searches in a text have taken about ten seconds.
 */
void match_search(const struct archive *archive, struct match_text *text,
		  const struct match_piece *piece, int (*func)(uint64_t base, void *context),
		  void *context);

/*
 * The address that a reference of a section leads to, if the section is at base. false if that
 * place is not in the text.
 */
bool match_target(const struct archive *archive, const struct match_text *text, uint32_t section,
		  const struct archive_reference *reference, uint64_t base, uint64_t *ret);

/* Whether calls or jumps lead to an address as they do to where a function begins. */
bool match_is_entry(const struct match_text *text, uint64_t vaddr);

#endif
