/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/inlines.h"

#include <dwarf.h>
#include <errno.h>

/* Of nested namespaces, types and functions; each level may cost one pass over the unit. */
#define MAX_NESTING 24
/* Of blocks between two inlined calls. */
#define MAX_BLOCKS 64

void inlines_fini(struct inlines *inlines)
{
	pcmap_fini(&inlines->functions);
	*inlines = (struct inlines){};
}

/*
 * The next entry on a level. libdw skips what is inside an entry without a DW_AT_sibling byte by
 * byte, so bytes are what is counted. False at the end, or where the work is.
 */
static bool next_sibling(Dwarf_Die *die, struct work *work)
{
	Dwarf_Die next;

	if (dwarf_siblingof(die, &next) || (uint8_t *)next.addr <= (uint8_t *)die->addr)
		return false;
	if (!work_take(work, 1 + ((uint8_t *)next.addr - (uint8_t *)die->addr) / 16))
		return false;
	*die = next;
	return true;
}

static bool holds_functions(int tag, bool deep)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
		return true;
	case DW_TAG_subprogram:
	case DW_TAG_lexical_block:
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
	case DW_TAG_interface_type:
		return deep;
	default:
		return false;
	}
}

struct indexing {
	struct pcmap *functions;
	uint64_t offset;
};

static int add_function(void *arg, uint64_t low, uint64_t high)
{
	struct indexing *indexing = arg;

	return pcmap_add(indexing->functions, low, high, indexing->offset);
}

static int index_entry(struct inlines *inlines, const struct dwarf_unit *unit, Dwarf_Die *die,
		       struct work *work)
{
	struct indexing indexing = {&inlines->functions, dwarf_dieoffset(die)};

	return dwarf_unit_ranges(unit, die, work, add_function, &indexing);
}

static int index_functions(struct inlines *inlines, const struct dwarf_unit *unit,
			   struct work *work)
{
	Dwarf_Die levels[MAX_NESTING], root = unit->die;
	size_t depth = 0;
	int err;

	inlines->indexed = true;
	inlines->functions.count = 0;
	if (dwarf_child(&root, &levels[0]))
		return 0;
	for (;;) {
		Dwarf_Die *die = &levels[depth];
		int tag = dwarf_tag(die);

		if (tag == DW_TAG_subprogram) {
			err = index_entry(inlines, unit, die, work);
			if (err)
				return err;
		}
		if (depth + 1 < MAX_NESTING && holds_functions(tag, inlines->deep) &&
		    dwarf_child(die, &levels[depth + 1]) == 0) {
			depth++;
			continue;
		}
		while (!next_sibling(&levels[depth], work)) {
			if (!depth || !work->left) {
				pcmap_sort(&inlines->functions);
				return work->left ? 0 : -E2BIG;
			}
			depth--;
		}
	}
}

static int find_function(struct inlines *inlines, const struct dwarf_unit *unit, uint64_t addr,
			 struct work *work, Dwarf_Die *ret, bool *ret_found)
{
	uint64_t offset;
	size_t position = 0;
	int err;

	*ret_found = false;
	if (!inlines->indexed) {
		err = index_functions(inlines, unit, work);
		if (err)
			return err;
	}
	if (!pcmap_next(&inlines->functions, addr, &position, &offset)) {
		if (inlines->deep)
			return 0;
		inlines->deep = true;
		err = index_functions(inlines, unit, work);
		if (err)
			return err;
		position = 0;
		if (!pcmap_next(&inlines->functions, addr, &position, &offset))
			return 0;
	}
	*ret_found = dwarf_offdie(unit->file->dwarf, offset, ret);
	return 0;
}

struct containing {
	uint64_t addr;
	bool found;
};

static int check_range(void *arg, uint64_t low, uint64_t high)
{
	struct containing *containing = arg;

	containing->found = containing->addr >= low && containing->addr < high;
	return containing->found;
}

/*
 * Finds the inlined call in an entry, or in its blocks, that holds addr. Blocks may overlap; one
 * without such a call is no reason not to look at the next.
 */
static int descend(const struct dwarf_unit *unit, Dwarf_Die *die, uint64_t addr, size_t depth,
		   struct work *work, Dwarf_Die *ret, bool *ret_found)
{
	struct containing containing = {.addr = addr};
	Dwarf_Die child;
	int err = 0;

	*ret_found = false;
	if (depth > MAX_BLOCKS || dwarf_child(die, &child))
		return 0;
	do {
		int tag = dwarf_tag(&child);

		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_lexical_block &&
		    tag != DW_TAG_try_block && tag != DW_TAG_catch_block)
			continue;
		err = dwarf_unit_ranges(unit, &child, work, check_range, &containing);
		if (err < 0)
			return err;
		if (!containing.found)
			continue;
		containing.found = false;
		if (tag == DW_TAG_inlined_subroutine) {
			*ret = child;
			*ret_found = true;
			return 0;
		}
		err = descend(unit, &child, addr, depth + 1, work, ret, ret_found);
		if (err || *ret_found)
			return err;
	} while (next_sibling(&child, work));
	return work->left ? 0 : -E2BIG;
}

static void describe(const struct dwarf_unit *unit, Dwarf_Die *die, struct inline_call *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word line;

	*ret = (struct inline_call){};
	ret->name = dwarf_unit_inherited_string(unit, die, DW_AT_linkage_name);
	if (!ret->name)
		ret->name = dwarf_unit_inherited_string(unit, die, DW_AT_MIPS_linkage_name);
	if (!ret->name)
		ret->name = dwarf_unit_inherited_string(unit, die, DW_AT_name);
	if (dwarf_attr_integrate(die, DW_AT_decl_line, &attr) && !dwarf_formudata(&attr, &line))
		ret->start_line = line;
	if (dwarf_tag(die) == DW_TAG_inlined_subroutine) {
		dwarf_unit_number(die, DW_AT_call_file, &ret->call_file);
		dwarf_unit_number(die, DW_AT_call_line, &ret->call_line);
	}
}

int inlines_lookup(struct inlines *inlines, const struct dwarf_unit *unit, uint64_t addr,
		   struct work *work, struct inline_call *calls, size_t *ret_count)
{
	size_t count = 0;
	Dwarf_Die die;
	bool found;
	int err;

	err = find_function(inlines, unit, addr, work, &die, &found);
	if (err)
		return err;
	while (found && count < INLINES_MAX_DEPTH) {
		describe(unit, &die, &calls[count++]);
		err = descend(unit, &die, addr, 0, work, &die, &found);
		if (err)
			return err;
	}
	for (size_t i = 0; i < count / 2; i++) {
		struct inline_call call = calls[i];

		calls[i] = calls[count - 1 - i];
		calls[count - 1 - i] = call;
	}
	*ret_count = count;
	return 0;
}
