/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * MiniDebugInfo: an xz-compressed ELF file in the section .gnu_debugdata, which holds the function
 * symbols that .dynsym lacks. Fedora's packages have it.
 */
#ifndef HEAPTAP_ELF_MINIDEBUG_H
#define HEAPTAP_ELF_MINIDEBUG_H

#include "elf/image.h"

/*
 * Unpacks the section into memory and opens it as an image. Errors: -ENOENT if there is none,
 * -EBADMSG for one that is no xz file, -E2BIG for one that grows beyond 64 MiB or needs more memory
 * to unpack, -ENOEXEC if it holds no ELF file, -ENOMEM.
 */
int minidebug_open(struct image *image, struct image **ret);

#endif
