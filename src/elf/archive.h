/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The code in the relocatable objects of an ar archive, as a static linker sees it: sections, which
 * it moves as a whole, the functions they define, and what they refer to.
 */
#ifndef HEAPTAP_ELF_ARCHIVE_H
#define HEAPTAP_ELF_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/relocation.h"
#include "util/cleanup.h"

#define ARCHIVE_NONE UINT32_MAX

/* A key of archive_reference that stands for a section, not for a name. */
#define ARCHIVE_KEY_SECTION 0x80000000u

/* Code. */
struct archive_section {
	uint8_t *bytes;
	uint8_t *mask; /* 0xff for a byte that linkers leave alone, else 0 */
	uint32_t size;
	uint32_t align;
	uint32_t member; /* objects are numbered from 0 */
	uint32_t key;	 /* as references have it */
	bool plain;	 /* linkers keep such sections of one object in their order */
	uint32_t first_function;
	uint32_t function_count;
	uint32_t first_reference;
	uint32_t reference_count;
};

/* A global or weak function. */
struct archive_function {
	uint32_t name; /* index of archive->names */
	uint32_t section;
	uint32_t offset; /* in the section, as is its size; the size is not 0 */
	uint32_t size;
	bool hidden;	       /* not for users of the library */
	bool weak;	       /* gives way to one of the same name that is not */
	uint32_t next_by_name; /* another object's function of this name, or ARCHIVE_NONE */
};

/* Code that tells where a symbol is. Sorted by kind, key and offset in each section. */
struct archive_reference {
	enum relocation_kind kind; /* never opaque */
	uint32_t key;		   /* index of archive->names, or a section's */
	uint32_t offset;
	int64_t addend; /* to the address of the name or section */
};

struct archive_name {
	char *text;
	uint32_t first_function; /* or ARCHIVE_NONE */
};

struct archive {
	struct archive_section *sections;
	struct archive_function *functions; /* by section */
	struct archive_reference *references;
	struct archive_name *names;
	uint32_t section_count;
	uint32_t function_count;
	uint32_t reference_count;
	uint32_t name_count;
	uint32_t member_count;
};

/*
 * Reads an archive, or a single object. What is malformed in it is left out. Errors: -ENOTSUP for a
 * thin archive (it holds no code), -ENOEXEC if the file holds no x86-64 objects, -E2BIG for more
 * than any library has, -ENOMEM, or read errors.
 */
int archive_read(int fd, struct archive **ret);
void archive_free(struct archive *archive);
DEFINE_CLEANUP(archive, struct archive *, archive_free)

#endif
