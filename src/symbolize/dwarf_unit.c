/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Addresses and ranges of entries: DWARF 4 section 2.17.3, DWARF 5 section 2.17.3 and 7.25, and the
 * GNU extension for split units before DWARF 5.
 *
 * libdw resolves them as well, but only for split units that it has opened itself, and runs through
 * lists without a bound.
 */
#include "symbolize/dwarf_unit.h"

#include <dwarf.h>
#include <errno.h>

#include "util/cursor.h"

/* Attributes before DWARF 5 numbered them. */
#ifndef DW_AT_GNU_ranges_base
#define DW_AT_GNU_ranges_base 0x2132
#endif

static const char *check_string(const struct dwarf_unit *unit, const char *string)
{
	const char *checked = dwarf_file_check_string(unit->file, string);

	return checked || unit->file == unit->main ? checked
						   : dwarf_file_check_string(unit->main, string);
}

const char *dwarf_unit_string(const struct dwarf_unit *unit, Dwarf_Die *die, unsigned int attribute)
{
	Dwarf_Attribute attr;

	return check_string(unit, dwarf_formstring(dwarf_attr(die, attribute, &attr)));
}

const char *dwarf_unit_inherited_string(const struct dwarf_unit *unit, Dwarf_Die *die,
					unsigned int attribute)
{
	Dwarf_Attribute attr;

	return check_string(unit, dwarf_formstring(dwarf_attr_integrate(die, attribute, &attr)));
}

bool dwarf_unit_number(Dwarf_Die *die, unsigned int attribute, uint64_t *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word number;

	if (!dwarf_attr(die, attribute, &attr) || dwarf_formudata(&attr, &number))
		return false;
	*ret = number;
	return true;
}

static struct cursor section_at(const struct line_section *section, uint64_t offset)
{
	struct cursor c =
		cursor_init(section->data ? section->data : (const void *)"", section->size);

	cursor_bytes(&c, offset);
	return c;
}

/* The bytes of an attribute's value. */
static struct cursor attribute_value(const struct dwarf_unit *unit, const Dwarf_Attribute *attr)
{
	const struct dwarf_file *files[] = {unit->file, unit->main};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const struct line_section *info = &files[i]->sections[DWARF_SECTION_info];

		if (attr->valp >= info->data && attr->valp < info->data + info->size)
			return cursor_init(attr->valp, info->data + info->size - attr->valp);
	}
	return (struct cursor){.underflow = true};
}

static bool indexed_address(const struct dwarf_unit *unit, uint64_t index, uint64_t *ret)
{
	const struct line_section *addr = &unit->main->sections[DWARF_SECTION_addr];
	struct cursor c;

	if (index >= addr->size / 8)
		return false;
	c = section_at(addr, unit->addr_base + 8 * index);
	*ret = cursor_u64(&c);
	return !c.underflow;
}

static bool attribute_address(const struct dwarf_unit *unit, Dwarf_Attribute *attr, uint64_t *ret)
{
	struct cursor c = attribute_value(unit, attr);
	Dwarf_Addr address;
	uint64_t index;

	switch (attr->form) {
	case DW_FORM_addr:
		if (dwarf_formaddr(attr, &address))
			return false;
		*ret = address;
		return true;
	case DW_FORM_addrx:
	case DW_FORM_GNU_addr_index:
		index = cursor_uleb128(&c);
		break;
	case DW_FORM_addrx1:
		index = cursor_u8(&c);
		break;
	case DW_FORM_addrx2:
		index = cursor_u16(&c);
		break;
	case DW_FORM_addrx3:
		index = cursor_uint(&c, 3);
		break;
	case DW_FORM_addrx4:
		index = cursor_u32(&c);
		break;
	default:
		return false;
	}
	return !c.underflow && indexed_address(unit, index, ret);
}

bool dwarf_unit_address(const struct dwarf_unit *unit, Dwarf_Die *die, unsigned int attribute,
			uint64_t *ret)
{
	Dwarf_Attribute attr;

	return dwarf_attr(die, attribute, &attr) && attribute_address(unit, &attr, ret);
}

/* An offset into a section, in the forms that DWARF 2 to 5 have for it; not an index. */
static bool attribute_offset(const struct dwarf_unit *unit, const Dwarf_Attribute *attr,
			     uint64_t *ret)
{
	struct cursor c = attribute_value(unit, attr);
	uint8_t offset_size = 4;

	if (attr->form == DW_FORM_sec_offset)
		dwarf_cu_die(attr->cu, &(Dwarf_Die){}, NULL, NULL, NULL, &offset_size, NULL, NULL);
	else if (attr->form == DW_FORM_data8)
		offset_size = 8;
	else if (attr->form != DW_FORM_data4)
		return false;
	*ret = cursor_uint(&c, offset_size);
	return !c.underflow;
}

bool dwarf_unit_offset(const struct dwarf_unit *unit, Dwarf_Die *die, unsigned int attribute,
		       uint64_t *ret)
{
	Dwarf_Attribute attr;

	return dwarf_attr(die, attribute, &attr) && attribute_offset(unit, &attr, ret);
}

void dwarf_unit_init(struct dwarf_unit *unit, const struct dwarf_file *main, Dwarf_Die *skeleton,
		     uint16_t version)
{
	*unit = (struct dwarf_unit){
		.main = main,
		.file = main,
		.skeleton = *skeleton,
		.die = *skeleton,
		.version = version,
	};
	if (!dwarf_unit_offset(unit, skeleton, DW_AT_addr_base, &unit->addr_base))
		dwarf_unit_offset(unit, skeleton, DW_AT_GNU_addr_base, &unit->addr_base);
	dwarf_unit_offset(unit, skeleton, DW_AT_rnglists_base, &unit->rnglists_base);
	if (!dwarf_unit_address(unit, skeleton, DW_AT_low_pc, &unit->base))
		dwarf_unit_address(unit, skeleton, DW_AT_entry_pc, &unit->base);
}

typedef int range_func(void *arg, uint64_t low, uint64_t high);

static int walk_ranges(const struct dwarf_unit *unit, uint64_t offset, struct work *work,
		       range_func *func, void *arg)
{
	struct cursor c = section_at(&unit->main->sections[DWARF_SECTION_ranges], offset);
	uint64_t base = unit->base;
	int err = 0;

	while (!err) {
		uint64_t low = cursor_u64(&c), high = cursor_u64(&c);

		if (c.underflow || (!low && !high))
			return 0;
		if (!work_take(work, 1))
			return -E2BIG;
		if (low == UINT64_MAX)
			base = high;
		else
			err = func(arg, base + low, base + high);
	}
	return err;
}

static int walk_rnglist(const struct dwarf_unit *unit, uint64_t offset, struct work *work,
			range_func *func, void *arg)
{
	struct cursor c = section_at(&unit->file->sections[DWARF_SECTION_rnglists], offset);
	uint64_t base = unit->base;
	int err = 0;

	while (!err) {
		uint8_t kind = cursor_u8(&c);
		uint64_t low = 0, high = 0;
		bool valid = true;

		if (!work_take(work, 1))
			return -E2BIG;
		switch (kind) {
		case DW_RLE_base_addressx:
			valid = indexed_address(unit, cursor_uleb128(&c), &base);
			break;
		case DW_RLE_startx_endx:
			valid = indexed_address(unit, cursor_uleb128(&c), &low);
			valid = indexed_address(unit, cursor_uleb128(&c), &high) && valid;
			break;
		case DW_RLE_startx_length:
			valid = indexed_address(unit, cursor_uleb128(&c), &low);
			high = low + cursor_uleb128(&c);
			break;
		case DW_RLE_offset_pair:
			low = base + cursor_uleb128(&c);
			high = base + cursor_uleb128(&c);
			break;
		case DW_RLE_base_address:
			base = cursor_u64(&c);
			break;
		case DW_RLE_start_end:
			low = cursor_u64(&c);
			high = cursor_u64(&c);
			break;
		case DW_RLE_start_length:
			low = cursor_u64(&c);
			high = low + cursor_uleb128(&c);
			break;
		default: /* DW_RLE_end_of_list among them */
			return 0;
		}
		if (c.underflow)
			return 0;
		if (valid && high > low)
			err = func(arg, low, high);
	}
	return err;
}

/* A list by its index: an offset from the base, found in the table at the base. */
static bool indexed_rnglist(const struct dwarf_unit *unit, uint64_t index, uint64_t *ret)
{
	const struct line_section *section = &unit->file->sections[DWARF_SECTION_rnglists];
	struct cursor c;

	if (index >= section->size / 4)
		return false;
	/* Lists with 64-bit offsets are not written by any compiler. */
	c = section_at(section, unit->rnglists_base + 4 * index);
	*ret = unit->rnglists_base + cursor_u32(&c);
	return !c.underflow;
}

int dwarf_unit_ranges(const struct dwarf_unit *unit, Dwarf_Die *die, struct work *work,
		      range_func *func, void *arg)
{
	Dwarf_Attribute attr;
	uint64_t low, high, offset;
	struct cursor c;

	if (!dwarf_attr(die, DW_AT_ranges, &attr)) {
		if (!dwarf_attr(die, DW_AT_low_pc, &attr) || !attribute_address(unit, &attr, &low))
			return 0;
		if (!dwarf_attr(die, DW_AT_high_pc, &attr))
			return 0;
		if (attribute_address(unit, &attr, &high))
			return func(arg, low, high);
		return dwarf_unit_number(die, DW_AT_high_pc, &high) ? func(arg, low, low + high)
								    : 0;
	}
	if (attr.form == DW_FORM_rnglistx) {
		c = attribute_value(unit, &attr);
		if (!indexed_rnglist(unit, cursor_uleb128(&c), &offset))
			return 0;
		return walk_rnglist(unit, offset, work, func, arg);
	}
	if (!attribute_offset(unit, &attr, &offset))
		return 0;
	if (unit->version >= 5)
		return walk_rnglist(unit, offset, work, func, arg);
	return walk_ranges(unit, offset + unit->ranges_base, work, func, arg);
}
