/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An opened ELF image: its identity, its segments and access to its sections.
 *
 * The descriptor stays open, so that a deleted file or one of a process that has exited can still
 * be read. Addresses are the file's own virtual addresses; frames carry file offsets.
 */
#ifndef HEAPTAP_ELF_IMAGE_H
#define HEAPTAP_ELF_IMAGE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <libelf.h>

#include "util/cleanup.h"

struct image;

/*
 * Opens the ELF file behind fd. Takes the descriptor over in every case. path is what messages and
 * profiles call it; it is copied. Errors: -ENOEXEC if it is no readable 64-bit x86-64 ELF file,
 * -ENOMEM, or read errors.
 */
int image_open(int fd, const char *path, struct image **ret);
void image_free(struct image *image);
DEFINE_CLEANUP(image, struct image *, image_free)

/*
 * Gives the memory back that the file's contents take; they are read again when asked for. What was
 * read through image_elf() and image_bytes() is gone then.
 */
void image_forget(struct image *image);

const char *image_path(const struct image *image);
int image_fd(const struct image *image);
/* Shared by all users of the image, and libelf keeps in it whatever was read. */
Elf *image_elf(struct image *image);
/*
 * A handle of the caller's own, for elf_end(): its memory goes with it, and it can be used while
 * others use the image. NULL if memory ran out or the file has become unreadable.
 */
Elf *image_elf_new(const struct image *image);
static inline void image_elf_end(Elf *elf)
{
	elf_end(elf);
}
DEFINE_CLEANUP(elf, Elf *, image_elf_end)

/* Lower-case hex digits of the GNU build-id note, or "" if there is none. */
const char *image_build_id(const struct image *image);
/* ET_EXEC, or ET_DYN with DF_1_PIE, or with PT_INTERP and no DT_SONAME (libc.so.6 has both). */
bool image_is_executable(const struct image *image);
/* PT_INTERP's path, or NULL. */
const char *image_interpreter(const struct image *image);

/* Conversion by PT_LOAD. Return 0, or -ERANGE if no segment's file part covers it. */
int image_offset_to_vaddr(const struct image *image, uint64_t offset, uint64_t *ret);
int image_vaddr_to_offset(const struct image *image, uint64_t vaddr, uint64_t *ret);

/*
 * What a process adds to the file's virtual addresses that has file offset `offset` of it mapped as
 * code at `start`. Mappings are of whole pages, so they begin before the segment where the linker
 * has not aligned it in the file, as lld does not: that page may be of another segment, too.
 * Returns 0, or -ERANGE if no code segment is there.
 */
int image_bias(const struct image *image, uint64_t start, uint64_t offset, uint64_t *ret);

/*
 * For a separate debug file, whose segments have addresses but no bytes: its code is from now on
 * what the image has at file offset `offset`, where a mapping of it begins; if that is 0, where
 * linkers put it. image_bytes() then has no meaning. Returns 0, or -ENOENT without a code segment.
 */
int image_assume_code(struct image *image, uint64_t offset);

/*
 * Up to size bytes of the file at a virtual address, owned by the image. Returns NULL if the
 * address is in no segment's file part; *ret_size (may be less than size) otherwise.
 */
const uint8_t *image_bytes(struct image *image, uint64_t vaddr, size_t size, size_t *ret_size);

#endif
