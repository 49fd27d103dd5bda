/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel side's look at page tables, compiled here, over made-up ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

__attribute__((noinline)) uint32_t page_block_present(unsigned long long block);
__attribute__((noinline)) uint32_t page_block_new(unsigned long long block, uint32_t present,
						  unsigned long long own, long long distance);

#include "pages.bpf.h"

/* Where the kernel has physical memory, which here is only tables. */
#define BASE	0xffff888000000000ull
#define TABLES	8
#define ENTRIES 512
#define ADDRESS 0x7f1234567000ull
#define ANON	(PAGE_PRESENT | PAGE_WRITABLE | PAGE_DIRTY)
#define FILED	PAGE_PRESENT

static uint64_t memory[TABLES][ENTRIES];

static int page_table_read(__u64 *entries, __u32 size, __u64 address)
{
	if (address < BASE || address + size > BASE + sizeof(memory))
		return -14;
	memcpy(entries, (char *)memory + (address - BASE), size);
	return 0;
}

static uint64_t table_address(int table)
{
	return BASE + table * sizeof(memory[0]);
}

static unsigned int index_of(uint64_t address, int level)
{
	return address >> (12 + 9 * (level - 1)) & (ENTRIES - 1);
}

/* Tables 0, 1, 2... lead to address, the last one of level `last`; returns its entry. */
static uint64_t *map(int levels, int last, uint64_t address)
{
	int table = 0;

	for (int level = levels; level > last; level--, table++)
		memory[table][index_of(address, level)] =
			(table_address(table + 1) - BASE) | PAGE_PRESENT | PAGE_WRITABLE;
	return &memory[table][index_of(address, last)];
}

static int setup(void **state)
{
	memset(memory, 0, sizeof(memory));
	return 0;
}

static const struct page_tables four = {.base = BASE, .levels = 4};

static void small_pages_are_found(void **state)
{
	struct page_leaf leaf = {};

	for (unsigned int levels = 4; levels <= 5; levels++) {
		struct page_tables tables = {.base = BASE, .levels = levels};

		setup(NULL);
		*map(levels, 1, ADDRESS) = 0x123456000 | ANON | 1ull << 63;
		assert_int_equal(page_leaf_find(&tables, BASE, ADDRESS + 5, &leaf), 0);
		assert_int_equal(leaf.shift, 12);
		assert_int_equal(leaf.entry, 0x123456000 | ANON | 1ull << 63);
		assert_int_equal(page_physical(&leaf, ADDRESS + 5), 0x123456005);
	}
}

static void large_pages_are_found(void **state)
{
	struct page_leaf leaf = {};

	/* Bit 12 belongs to the memory type, not to the address. */
	*map(4, 2, ADDRESS) = 0x40000000 | 1 << 12 | ANON | PAGE_LARGE;
	assert_int_equal(page_leaf_find(&four, BASE, ADDRESS, &leaf), 0);
	assert_int_equal(leaf.shift, 21);
	assert_int_equal(page_physical(&leaf, ADDRESS), 0x40000000 | (ADDRESS & 0x1fffff));
	*map(4, 3, ADDRESS) = 0x80000000 | ANON | PAGE_LARGE;
	assert_int_equal(page_leaf_find(&four, BASE, ADDRESS, &leaf), 0);
	assert_int_equal(leaf.shift, 30);
}

static void what_is_missing_is_no_page(void **state)
{
	struct page_leaf leaf = {};

	for (int last = 4; last >= 1; last--) {
		setup(NULL);
		map(4, last, ADDRESS);
		assert_int_equal(page_leaf_find(&four, BASE, ADDRESS, &leaf), 0);
		assert_int_equal(leaf.entry, 0);
		assert_int_equal(leaf.shift, 12 + 9 * (last - 1));
	}
}

static void unreadable_tables_are_an_error(void **state)
{
	struct page_leaf leaf = {};

	assert_int_not_equal(page_leaf_find(&four, 4096, ADDRESS, &leaf), 0);
	memory[0][index_of(ADDRESS, 4)] = 0x700000000000 | PAGE_PRESENT;
	assert_int_not_equal(page_leaf_find(&four, BASE, ADDRESS, &leaf), 0);
}

static int made(uint64_t before, uint64_t after)
{
	const struct page_leaf from = {before, 12, 0}, to = {after, 12, 0};

	return page_made_resident(&from, &to, ADDRESS);
}

static void new_pages_are_resident(void **state)
{
	assert_true(made(0, 0x1000 | ANON));
	assert_true(made(0, 0x1000 | FILED));
	/* Swapped out before. */
	assert_true(made(0x7fffffffffe00000, 0x1000 | ANON));
	/* A copy: of the zero page, and of another page. */
	assert_true(made(0x5000 | PAGE_PRESENT | PAGE_SPECIAL, 0x1000 | ANON));
	assert_true(made(0x5000 | PAGE_PRESENT, 0x1000 | ANON));
}

static void the_same_pages_are_not(void **state)
{
	assert_false(made(0x1000 | PAGE_PRESENT, 0x1000 | ANON));
	assert_false(made(0x1000 | ANON, 0x1000 | ANON));
	/* PROT_NONE, and a hint for NUMA balancing, upon which the page was moved. */
	assert_false(made((~0x1000ull & PAGE_ADDRESS) | PAGE_NO_ACCESS, 0x1000 | ANON));
	assert_false(made((~0x1000ull & PAGE_ADDRESS) | PAGE_NO_ACCESS, 0x9000 | ANON));
	/* The zero page, and nothing at all. */
	assert_false(made(0, 0x5000 | PAGE_PRESENT | PAGE_SPECIAL));
	assert_false(made(0, 0));
}

static void split_huge_pages_are_the_same_pages(void **state)
{
	const struct page_leaf huge = {0x40000000 | PAGE_PRESENT | PAGE_LARGE, 21, 0};
	uint64_t within = ADDRESS & 0x1ff000;
	const struct page_leaf same = {(0x40000000 + within) | ANON, 12, 0};
	const struct page_leaf copy = {0x70000000 | ANON, 12, 0};

	assert_false(page_made_resident(&huge, &same, ADDRESS));
	assert_true(page_made_resident(&huge, &copy, ADDRESS));
}

/* Counts what is new at ADDRESS, the entries around which are in the last table. */
static uint32_t count(const struct page_tables *tables, const struct page_before *before)
{
	struct page_leaf after = {};

	assert_int_equal(page_leaf_find(tables, BASE, ADDRESS, &after), 0);
	return after.entry & PAGE_DIRTY ? page_count_folio(tables, before, &after)
					: page_count_file(tables, before, &after);
}

/* What is there now. */
static struct page_before note(const struct page_tables *tables)
{
	struct page_before before = {};

	assert_int_equal(page_leaf_find(tables, BASE, ADDRESS, &before.leaf), 0);
	page_note_present(tables, &before);
	return before;
}

static void a_file_is_mapped_by_the_block(void **state)
{
	uint64_t *own = map(4, 1, ADDRESS), *block = own - (own - memory[3]) % PAGE_BLOCK_ENTRIES;
	struct page_before before;

	block[3] = 0x7000 | FILED;
	before = note(&four);
	for (int i = -1; i < PAGE_BLOCK_ENTRIES; i++)
		block[i] = (0x100000 + i * 0x3000) | FILED;
	block[5] = 0x8000 | ANON; /* another thread's */
	assert_int_equal(count(&four, &before), PAGE_BLOCK_ENTRIES - 2);
}

static void a_mapping_that_begins_in_a_block_goes_on_in_the_next(void **state)
{
	uint64_t *own = map(4, 1, ADDRESS), *block = own - (own - memory[3]) % PAGE_BLOCK_ENTRIES;
	struct page_before before;

	block[PAGE_BLOCK_ENTRIES + 1] = 0x7000 | FILED;
	before = note(&four);
	for (int i = own - block; i < own - block + PAGE_BLOCK_ENTRIES; i++)
		block[i] = (0x100000 + i * 0x3000) | FILED;
	assert_int_equal(count(&four, &before), PAGE_BLOCK_ENTRIES - 1);
}

static void nothing_is_read_behind_a_table(void **state)
{
	const uint64_t last = ADDRESS | 0x1ff000;
	struct page_before before = {};
	struct page_leaf after = {};
	uint64_t *own = map(4, 1, last);

	assert_int_equal(page_leaf_find(&four, BASE, last, &before.leaf), 0);
	page_note_present(&four, &before);
	own[0] = 0x1000 | FILED;
	memory[4][0] = 0x9000 | FILED;
	assert_int_equal(page_leaf_find(&four, BASE, last, &after), 0);
	assert_int_equal(page_count_file(&four, &before, &after), 1);
}

static void where_there_was_no_table_all_is_new(void **state)
{
	struct page_before before;
	uint64_t *own;

	map(4, 2, ADDRESS);
	assert_int_equal(page_leaf_find(&four, BASE, ADDRESS, &before.leaf), 0);
	memset(before.present, 0xff, sizeof(before.present));
	own = map(4, 1, ADDRESS);
	own[0] = 0x1000 | FILED;
	own[1] = 0x9000 | FILED;
	assert_int_equal(count(&four, &before), 2);
}

static void large_folios_count_as_a_whole(void **state)
{
	struct page_tables tables = {.base = BASE, .levels = 4};
	struct page_before before;

	for (tables.blocks = 1; tables.blocks <= PAGE_MAX_BLOCKS; tables.blocks *= 2) {
		unsigned int entries = tables.blocks * PAGE_BLOCK_ENTRIES;
		uint64_t *own, *first;

		setup(NULL);
		own = map(4, 1, ADDRESS);
		first = own - (own - memory[3]) % entries;
		before = note(&tables);
		for (unsigned int i = 0; i < entries; i++)
			first[i] = (0x100000 + i * 0x1000) | ANON;
		assert_int_equal(count(&tables, &before), entries);
		/* Another thread's page next to it, elsewhere in memory. */
		first[own == first] = 0x900000 | ANON;
		assert_int_equal(count(&tables, &before), entries - 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(small_pages_are_found, setup),
		cmocka_unit_test_setup(large_pages_are_found, setup),
		cmocka_unit_test_setup(what_is_missing_is_no_page, setup),
		cmocka_unit_test_setup(unreadable_tables_are_an_error, setup),
		cmocka_unit_test_setup(new_pages_are_resident, setup),
		cmocka_unit_test_setup(the_same_pages_are_not, setup),
		cmocka_unit_test_setup(split_huge_pages_are_the_same_pages, setup),
		cmocka_unit_test_setup(a_file_is_mapped_by_the_block, setup),
		cmocka_unit_test_setup(a_mapping_that_begins_in_a_block_goes_on_in_the_next, setup),
		cmocka_unit_test_setup(nothing_is_read_behind_a_table, setup),
		cmocka_unit_test_setup(where_there_was_no_table_all_is_new, setup),
		cmocka_unit_test_setup(large_folios_count_as_a_whole, setup),
	};

	return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
