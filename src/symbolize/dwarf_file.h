/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One file's DWARF, opened: libdw's handle, the sections that are read here, and the supplementary
 * file (dwz) that it refers to.
 *
 * libdw is kept from opening files by itself. It would map them, wait for a writer where a FIFO
 * has the name, and believe a supplementary file whatever its build-id.
 */
#ifndef HEAPTAP_SYMBOLIZE_DWARF_FILE_H
#define HEAPTAP_SYMBOLIZE_DWARF_FILE_H

#include <elfutils/libdw.h>
#include <stddef.h>
#include <stdint.h>

#include "symbolize/line_table.h"
#include "util/cleanup.h"

/* More than this of debugging sections, decompressed, is not read: 2 GiB. */
#define DWARF_FILE_MAX_BYTES ((uint64_t)2 << 30)

/* A section by its name without ".debug_" and ".dwo". */
#define DWARF_SECTIONS(X)                                                                          \
	X(info)                                                                                    \
	X(abbrev)                                                                                  \
	X(line)                                                                                    \
	X(line_str)                                                                                \
	X(str)                                                                                     \
	X(str_offsets)                                                                             \
	X(addr)                                                                                    \
	X(ranges)                                                                                  \
	X(rnglists)                                                                                \
	X(cu_index)

enum dwarf_section {
#define X(name) DWARF_SECTION_##name,
	DWARF_SECTIONS(X)
#undef X
		DWARF_SECTION_COUNT
};

struct dwarf_file {
	int fd; /* -1: borrowed, or none */
	Elf *elf;
	Dwarf *dwarf;
	void *memory; /* of a file made here */
	struct dwarf_file *supplement;
	uint64_t size; /* of the sections */
	struct line_section sections[DWARF_SECTION_COUNT];
};

/* Where a file is, for what lies beside it. Borrowed. */
struct dwarf_place {
	int root_fd; /* searched before our own root; -1 for none */
	const char *path;
};

/*
 * Opens the DWARF behind a descriptor, which stays the caller's. Errors: -ENOENT if there is none,
 * -EBADMSG if libdw refuses it, -E2BIG, -ENOMEM.
 */
int dwarf_file_open(int fd, const struct dwarf_place *place, struct dwarf_file **ret);

/*
 * Reads the sections of a .dwo (name ends in .dwo) or .dwp file, without a libdw handle. Takes the
 * descriptor over.
 */
int dwarf_file_open_split(int fd, struct dwarf_file **ret);

/* Makes a file with the given sections, plainly named, and opens it. They are copied. */
int dwarf_file_make(const struct line_section sections[DWARF_SECTION_COUNT],
		    struct dwarf_file **ret);

void dwarf_file_close(struct dwarf_file *file);
DEFINE_CLEANUP(dwarf_file, struct dwarf_file *, dwarf_file_close)

/*
 * A string that libdw has returned, if it ends inside a section of the file or its supplement; else
 * NULL. libdw does not look for the end.
 */
const char *dwarf_file_check_string(const struct dwarf_file *file, const char *string);

/* A descriptor of a regular file, or a negative errno. */
int dwarf_file_open_path(const struct dwarf_place *place, const char *path);

#endif
