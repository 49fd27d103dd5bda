/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the kernel side reads page tables. Where physical memory begins in the kernel's address space
 * is random and told nowhere, so it is found out: the loader has a page whose content and physical
 * address it knows, find_page_tables() tries each place where that page could be, and then looks
 * the page up in the page table, which also proves that it reads it right.
 */
#ifndef HEAPTAP_FAULT_H
#define HEAPTAP_FAULT_H

#include "heaptap/types.h"

struct page_tables {
	__u64 base;   /* the kernel's address of physical address 0 */
	__u32 levels; /* 4 or 5; 0: page tables cannot be read */
	__u32 blocks; /* of the largest folio of small pages, or 0; the loader sets it */
};

/* Entries of a page table that are read at once: 64 KiB of memory. */
#define PAGE_BLOCK_ENTRIES 16
/* The largest folio of anonymous memory below a huge page, 1 MiB. */
#define PAGE_MAX_BLOCKS 16

#define PAGE_PROOF_WORDS 4

/* A page of the loader's. */
struct page_proof {
	__u64 address;
	__u64 physical;
	__u64 words[PAGE_PROOF_WORDS]; /* it begins with these, which are random */
};

/* Physical memory begins at a multiple of this: see kernel_randomize_memory(). */
#define PAGE_BASE_STEP (1ull << 30)
/* The loader's page table lies within the first so many of these: 64 TiB. */
#define PAGE_BASES (1u << 16)

/* Programs that run after a fault: of the minor ones, and of the major ones. */
enum fault_kind { FAULT_MINOR, FAULT_MAJOR, FAULT_KINDS };

#endif
