/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names for frames: once per image and file offset, cached. */
#ifndef HEAPTAP_SYMBOLIZE_SYMBOLIZER_H
#define HEAPTAP_SYMBOLIZE_SYMBOLIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "elf/debuginfo.h"
#include "elf/image.h"

struct symbolizer;
struct raw_mapping;

struct symbolizer_options {
	const char *const *debug_dirs; /* laid out like /usr/lib/debug, searched first */
	size_t debug_dir_count;
	bool lines; /* source lines and inlined calls as well */
};

/* One function at a frame; a frame has several where calls were inlined, innermost first. */
struct symbolized_line {
	const char *name;	 /* demangled, and a part of a function is named as the function */
	const char *system_name; /* as in the file */
	const char *filename;	 /* NULL if not known */
	long line;		 /* 0 if not known */
	long start_line;	 /* of the function; 0 if not known */
};

struct symbolized_frame {
	const struct symbolized_line *lines;
	size_t line_count;		   /* 0: no name is known */
	const struct raw_mapping *mapping; /* of a raw address, NULL if it is in none we know */
};

/* The options' folders are copied. Errors: -ENOMEM. */
int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret);
void symbolizer_free(struct symbolizer *symbolizer);
DEFINE_CLEANUP(symbolizer, struct symbolizer *, symbolizer_free)

/*
 * Takes note of a process while it lives: its root, where debug files are searched from then on
 * until another's is known, its vdso, and the names its JIT compiler has written until now. Cheap;
 * to be called before snapshots and when the process has just begun. Returns 0, also if it has
 * exited, or -ENOMEM.
 */
int symbolizer_refresh(struct symbolizer *symbolizer, pid_t pid);

/*
 * Names the code at a file offset of an image. The image must outlive the symbolizer. The result
 * is owned by the symbolizer. Returns 0 also when nothing is known, or -ENOMEM.
 */
int symbolizer_lookup(struct symbolizer *symbolizer, struct image *image, uint64_t offset,
		      struct symbolized_frame *ret);

/* The same for an address of a process that no file backs. A name once given stays. */
int symbolizer_lookup_raw(struct symbolizer *symbolizer, pid_t pid, uint64_t address,
			  struct symbolized_frame *ret);

/*
 * When a snapshot is through: what is too large even by itself is dropped, and what is known of
 * processes that are not wanted any more. Frames that were named stay, but for theirs.
 */
void symbolizer_trim(struct symbolizer *symbolizer, bool (*wanted)(void *arg, pid_t pid),
		     void *arg);

struct symbolizer_stats {
	size_t frames; /* asked for */
	size_t named;
	size_t with_lines;
	size_t images;
	size_t debug_files; /* separate ones in use */
	size_t table_bytes; /* memory of symbols and DWARF, at most 24 MiB but for one file's */
	size_t forgotten;   /* files whose tables were dropped to stay below */
	size_t malformed_jit_lines; /* in the files of JIT compilers */
	uint64_t time_ns;
	struct debuginfo_stats debuginfo;
};

void symbolizer_read_stats(const struct symbolizer *symbolizer, struct symbolizer_stats *ret);

#endif
