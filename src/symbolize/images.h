/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The files behind frames, by the image id that the kernel side gave them.
 *
 * Files are opened as soon as they are known and stay open, so that frames of a deleted file, or
 * of a process that has exited, can still be named.
 */
#ifndef HEAPTAP_SYMBOLIZE_IMAGES_H
#define HEAPTAP_SYMBOLIZE_IMAGES_H

#include <stdbool.h>
#include <sys/types.h>

#include "elf/image.h"
#include "heaptap/stack.h"

struct images;
struct maps;

/* One id. Several ids share a struct image if their files have the same build-id. */
struct image_entry {
	uint32_t id;
	struct image *image; /* NULL if the file could not be opened or is no ELF file */
	char *path;	     /* as the target calls it, or only its last part */
	uint64_t start;	     /* a mapping of it, for addresses in profiles; never 0 */
	uint64_t end;
	uint64_t offset;
	bool located;		      /* the mapping is a target's, not made up */
	struct image_entry *nameless; /* without an image, from before the file was known */
};

/* Calls gone() for every located image that a process no longer maps as code. */
void images_find_gone(const struct images *images, const struct maps *maps,
		      void (*gone)(void *arg, uint32_t id), void *arg);

/*
 * identify tells which id the kernel side gives to each of count files (0: none). It makes sure
 * that an id gets the file that it stands for, whatever the process has mapped in its place by
 * then.
 */
int images_new(int (*identify)(void *arg, const int *fds, size_t count, uint32_t *ids), void *arg,
	       struct images **ret);
void images_free(struct images *images);
DEFINE_CLEANUP(images, struct images *, images_free)

/*
 * Adds an opened file; takes the image over, also on error. The first one added is the main
 * program. Nothing happens if the id is known, unless it has no image so far.
 */
int images_add_file(struct images *images, uint32_t id, struct image *image);

/*
 * Opens and adds the file of an image that the kernel side has met, through the process that maps
 * it. Returns 0 if the id is known now; -EAGAIN if the process has unmapped the file for the
 * moment; -ENOMEM. Where nothing helps (the process is gone, the file is never found) the entry has
 * a name, but no image until images_add_file() has one.
 */
int images_add_sight(struct images *images, const struct image_sight *sight);

/* Gives entries the addresses of a process's mappings, where they have none yet. */
void images_locate(struct images *images, const struct maps *maps);
bool images_all_located(const struct images *images);

/* NULL if the id is not known. Owned by the images. For the thread that adds and locates. */
const struct image_entry *images_lookup(const struct images *images, uint32_t id);

/*
 * For readers in other threads: a copy of the entry, whose path and image live as long as the
 * images. Return false if the id is not known, no file has that path, or no main program was added.
 */
bool images_read(struct images *images, uint32_t id, struct image_entry *ret);
/* The last one that was opened at a path. */
bool images_read_named(struct images *images, const char *path, struct image_entry *ret);
bool images_read_main(struct images *images, struct image_entry *ret);

#endif
