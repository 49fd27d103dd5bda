/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bytes of .eh_frame and .debug_frame, and the pointers encoded in them. See cfi.h. */
#ifndef HEAPTAP_ELF_CFI_SECTION_H
#define HEAPTAP_ELF_CFI_SECTION_H

#include "elf/image.h"
#include "util/cursor.h"

/* DW_EH_PE_*: LSB core, "DWARF Exception Header Encoding". */
#define CFI_PE_OMIT    0xff
#define CFI_PE_ALIGNED 0x50

/* What encoded pointers are relative to. */
struct cfi_bases {
	const uint8_t *bytes; /* pcrel: these bytes ... */
	uint64_t vaddr;	      /* ... lie at this address */
	uint64_t data;	      /* datarel; 0 if not known */
};

/* False if the encoding is not supported or reads memory (DW_EH_PE_indirect). A stored 0 is 0. */
bool cfi_read_pointer(struct cursor *c, uint8_t encoding, const struct cfi_bases *bases,
		      uint64_t *ret);

struct cfi_section {
	uint8_t *bytes;
	size_t size;
	struct cfi_bases bases;
	bool debug;	 /* .debug_frame */
	bool terminated; /* the size is not known: ends at the first zero length */
};

/* .eh_frame, or .debug_frame. Errors: -ENOENT if there is none, -ENOMEM, -E2BIG past 1 GiB. */
int cfi_section_read(struct image *image, struct cfi_section *section);
int cfi_section_read_debug(struct image *image, struct cfi_section *section);
void cfi_section_fini(struct cfi_section *section);

#endif
