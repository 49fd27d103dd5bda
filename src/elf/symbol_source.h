/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the names of an image's functions come from, without reading them. */
#ifndef HEAPTAP_ELF_SYMBOL_SOURCE_H
#define HEAPTAP_ELF_SYMBOL_SOURCE_H

#include "elf/debuginfo.h"
#include "elf/image.h"

/* The best one that there is. */
enum symbol_source {
	SYMBOL_SOURCE_OWN,   /* .symtab */
	SYMBOL_SOURCE_DEBUG, /* a separate debug file */
	SYMBOL_SOURCE_MINIDEBUG,
	SYMBOL_SOURCE_DYNAMIC, /* .dynsym: what it exports, and no more */
	SYMBOL_SOURCE_NONE,
};

/* root_fd: as debuginfo_find() takes it; no server is asked. Errors: -ENOMEM. */
int symbol_source_find(struct image *image, struct debuginfo *debuginfo, int root_fd,
		       enum symbol_source *ret);

#endif
