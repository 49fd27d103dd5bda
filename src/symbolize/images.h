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

/* One id. Several ids may share a file, when it is mapped through different inodes. */
struct image_entry {
	uint32_t id;	     /* 0: prepared, not met by the kernel side so far */
	struct image *image; /* NULL if the file could not be opened or is no ELF file */
	char *path;	     /* as the target calls it, or only its last part */
	uint64_t start;	     /* a mapping of it: for addresses in profiles */
	uint64_t end;
	uint64_t offset;
	uint64_t size; /* of the file */
};

int images_new(struct images **ret);
void images_free(struct images *images);
DEFINE_CLEANUP(images, struct images *, images_free)

/*
 * Prepares a file that frames are expected in; takes the image over, also on error. It serves when
 * the process is gone before its mapping can be opened. The mapping may be all 0 if not known.
 */
int images_prepare(struct images *images, struct image *image, uint64_t start, uint64_t end,
		   uint64_t offset);

/* Opens the file of an image the kernel side has met; nothing happens if the id is known. */
int images_add(struct images *images, const struct image_sight *sight);

/* NULL if the id is not known. Owned by the images. */
const struct image_entry *images_lookup(const struct images *images, uint32_t id);

/* The entry of the first prepared file, the program itself; NULL if none was prepared. */
const struct image_entry *images_main(const struct images *images);

#endif
