/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * x86-64 page tables: what maps an address, and what a fault there has made resident. Pure but for
 * page_table_read(), which the includer defines: the unit tests compile this file on the host.
 *
 * A fault is judged by what mapped its address before and after it. Bits are those of
 * arch/x86/include/asm/pgtable_types.h.
 */
#ifndef HEAPTAP_PAGES_BPF_H
#define HEAPTAP_PAGES_BPF_H

#include "heaptap/fault.h"

#define PAGE_DIRTY_BIT	 6
#define PAGE_SPECIAL_BIT 9

#define PAGE_PRESENT   (1ull << 0)
#define PAGE_WRITABLE  (1ull << 1)
#define PAGE_DIRTY     (1ull << PAGE_DIRTY_BIT)
#define PAGE_LARGE     (1ull << 7) /* above the last level */
#define PAGE_NO_ACCESS (1ull << 8) /* not present, but the page is there: PROT_NONE, NUMA hints */
#define PAGE_SPECIAL   (1ull << PAGE_SPECIAL_BIT) /* zero page, or none of the kernel's memory */
#define PAGE_ADDRESS   0x000ffffffffff000ull

#define PAGE_SHIFT_SMALL 12
#define PAGE_LEVEL_BITS	 9
#define PAGE_MAX_LEVELS	 5

/* The entry that ends the walk to an address, where it is, and that it maps 1 << shift bytes. */
struct page_leaf {
	__u64 entry;
	__u64 shift;
	__u64 slot; /* the kernel's address */
};

/* What mapped an address and its surroundings before a fault. */
struct page_before {
	struct page_leaf leaf;
	__u16 present[PAGE_MAX_BLOCKS]; /* a bit for each entry of a block */
	__u16 next;			/* likewise, of the block behind the leaf's own */
};

/* Reads from page tables; 0 or a negative error. */
static int page_table_read(__u64 *entries, __u32 size, __u64 address);

/* Walks from the top table, by the kernel's addresses. Returns 0 or a negative error. */
static inline int page_leaf_find(const volatile struct page_tables *tables, __u64 table,
				 __u64 address, struct page_leaf *leaf)
{
	__u64 shift = PAGE_SHIFT_SMALL + PAGE_LEVEL_BITS * (tables->levels - 1);
	__u64 entry, slot;
	int i;

	for (i = 0; i < PAGE_MAX_LEVELS; i++) {
		slot = table + (address >> (shift & 63) & 511) * sizeof(entry);
		if (page_table_read(&entry, sizeof(entry), slot))
			break;
		if (shift == PAGE_SHIFT_SMALL || !(entry & PAGE_PRESENT) || entry & PAGE_LARGE) {
			leaf->entry = entry;
			leaf->shift = shift;
			leaf->slot = slot;
			return 0;
		}
		table = tables->base + (entry & PAGE_ADDRESS);
		shift -= PAGE_LEVEL_BITS;
	}
	return -14; /* EFAULT */
}

/* The physical address of `address`, of which a page is there. */
static inline __u64 page_physical(const struct page_leaf *leaf, __u64 address)
{
	__u64 within = (1ull << (leaf->shift & 63)) - 1;
	/* Without access the kernel inverts the address, against speculation (L1TF). */
	__u64 entry = leaf->entry & PAGE_PRESENT ? leaf->entry : ~leaf->entry;

	return (entry & PAGE_ADDRESS & ~within) | (address & within);
}

/*
 * Whether a fault has made anything resident. It has not if it mapped the zero page; or if the page
 * that was there before is there still, and became writable, or accessible, or was moved to another
 * node.
 */
static inline int page_made_resident(const struct page_leaf *before, const struct page_leaf *after,
				     __u64 address)
{
	if (!(after->entry & PAGE_PRESENT) || after->entry & PAGE_SPECIAL)
		return 0;
	if (!(before->entry & PAGE_PRESENT))
		return !(before->entry & PAGE_NO_ACCESS);
	return before->entry & PAGE_SPECIAL ||
	       page_physical(before, address) >> PAGE_SHIFT_SMALL !=
		       page_physical(after, address) >> PAGE_SHIFT_SMALL;
}

/* Blocks around an entry that the same fault may have mapped, a power of two. */
static inline __u32 page_blocks(const volatile struct page_tables *tables)
{
	__u32 blocks = tables->blocks;

	return !blocks ? 1 : blocks > PAGE_MAX_BLOCKS ? PAGE_MAX_BLOCKS : blocks;
}

#define PAGE_BLOCK_BYTES (PAGE_BLOCK_ENTRIES * sizeof(__u64)) /* of the table */
#define PAGE_TABLE_BYTES (512 * sizeof(__u64))

/* Where the first of them begins. */
static inline __u64 page_blocks_start(const volatile struct page_tables *tables, __u64 slot)
{
	return slot & ~(page_blocks(tables) * PAGE_BLOCK_BYTES - 1);
}

/*
 * Which of a block's small pages are there, a bit for each; none if it cannot be read. A global
 * function, as the next but one: each is verified once, not per block.
 */
__attribute__((noinline)) __u32 page_block_present(__u64 block)
{
	__u64 entries[PAGE_BLOCK_ENTRIES];
	__u32 present = 0, i;

	if (page_table_read(entries, sizeof(entries), block))
		return 0;
	for (i = 0; i < PAGE_BLOCK_ENTRIES; i++)
		present |= (entries[i] & PAGE_PRESENT) << i;
	return present;
}

/*
 * 1 if a page is the same fault's as that of `own`, distance pages away, else 0: it is of its kind,
 * and unless it is clean at the place in memory that belongs to it. Without branches, each of which
 * would have the verifier go through the rest of the loop twice.
 */
static inline __u32 page_came_along(__u64 entry, __u64 own, __s64 distance)
{
	__u64 off = (entry & PAGE_ADDRESS) - (own & PAGE_ADDRESS) -
		    (__u64)distance * (1 << PAGE_SHIFT_SMALL);
	__u64 in_place = ((off | -off) >> 63) ^ 1;

	return entry & ~(entry >> PAGE_SPECIAL_BIT) & ~((entry ^ own) >> PAGE_DIRTY_BIT) &
	       (in_place | ~(own >> PAGE_DIRTY_BIT)) & PAGE_PRESENT;
}

/* How many of a block's pages are. distance: from `own` to its first entry, in pages. */
__attribute__((noinline)) __u32 page_block_new(__u64 block, __u32 present, __u64 own,
					       __s64 distance)
{
	__u64 entries[PAGE_BLOCK_ENTRIES];
	__u32 count = 0, i;

	if (page_table_read(entries, sizeof(entries), block))
		return 0;
	for (i = 0; i < PAGE_BLOCK_ENTRIES; i++)
		count += page_came_along(entries[i], own, distance + i) & ~(present >> i);
	return count;
}

/* The block behind an entry's own; 0 if the table ends there. */
static inline __u64 page_next_block(__u64 slot)
{
	__u64 next = (slot & ~(PAGE_BLOCK_BYTES - 1)) + PAGE_BLOCK_BYTES;

	return next & (PAGE_TABLE_BYTES - 1) ? next : 0;
}

/* Notes which small pages around a leaf are there. */
static inline void page_note_present(const volatile struct page_tables *tables,
				     struct page_before *before)
{
	__u64 start = page_blocks_start(tables, before->leaf.slot);
	__u64 next = page_next_block(before->leaf.slot);
	__u32 count = page_blocks(tables), i;

	for (i = 0; i < PAGE_MAX_BLOCKS && i < count; i++)
		before->present[i] = page_block_present(start + i * PAGE_BLOCK_BYTES);
	before->next = next ? page_block_present(next) : 0;
}

/* What was there before, of a block: bits of page_before; nothing if there was no table. */
static inline __u32 page_was_present(const struct page_before *before, __u32 bits)
{
	return before->leaf.shift == PAGE_SHIFT_SMALL ? bits : 0;
}

/*
 * The small pages that a fault has mapped where there was none, of a large folio of anonymous
 * memory: it is mapped as a whole, is written to, and lies in one piece.
 */
static inline __u32 page_count_folio(const volatile struct page_tables *tables,
				     const struct page_before *before,
				     const struct page_leaf *after)
{
	__u64 start = page_blocks_start(tables, after->slot);
	__s64 distance = -(__s64)((after->slot - start) / sizeof(__u64));
	__u32 count = page_blocks(tables), sum = 0, i;

	for (i = 0; i < PAGE_MAX_BLOCKS && i < count; i++)
		sum += page_block_new(start + i * PAGE_BLOCK_BYTES,
				      page_was_present(before, before->present[i]), after->entry,
				      distance + i * PAGE_BLOCK_ENTRIES);
	return sum;
}

/*
 * The same of a file that was read: what is in memory of 16 pages is mapped along, clean. They are
 * those of the page's block; or, if the mapping begins within that, those from there on.
 */
static inline __u32 page_count_file(const volatile struct page_tables *tables,
				    const struct page_before *before, const struct page_leaf *after)
{
	__u64 own = after->slot & ~(PAGE_BLOCK_BYTES - 1), next = page_next_block(after->slot);
	__u64 i = (own - page_blocks_start(tables, own)) / PAGE_BLOCK_BYTES & (PAGE_MAX_BLOCKS - 1);
	__u32 sum;

	sum = page_block_new(own, page_was_present(before, before->present[i]), after->entry, 0);
	if (next)
		sum += page_block_new(next, page_was_present(before, before->next), after->entry,
				      0);
	return sum;
}

#endif
