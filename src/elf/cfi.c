/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * .eh_frame and .debug_frame: a sequence of records.
 *
 *   length u32 (0xffffffff: u64 follows)  | 0 ends .eh_frame; a linker may leave one in the middle
 *   id     u32 (.debug_frame: u64 if the length is one)
 *   CIE: id 0 (.debug_frame: all ones); version u8; augmentation string; [v4: address and segment
 *        size u8]; code_align uleb; data_align sleb; return address register (u8, v3: uleb);
 *        ['z': uleb size of what L, P, R add]; instructions
 *   FDE: id says where the CIE is: .eh_frame bytes back from the id, .debug_frame from the start;
 *        start encoded by the CIE's R; size in the same format; ['z': uleb size, bytes];
 *        instructions
 *
 * CIEs are collected and executed once, in a first pass, and FDEs may only name these: so the time
 * is linear whatever a file claims.
 */
#include "elf/cfi.h"

#include <errno.h>
#include <string.h>

#include "elf/cfi_section.h"

/* With fewer functions than this .eh_frame is a startup file's remainder. */
#define FEW_FUNCTIONS 8

struct cie {
	uint64_t offset; /* of its record, in the table */
	struct cfi_context context;
	bool has_size; /* 'z': FDEs have augmentation data */
	bool wide_id;  /* ids are 8 bytes */
	bool valid;
};

struct table {
	struct cfi_section section;
	struct cie *cies;
	size_t cie_count;
	size_t cie_capacity;
};

enum { TABLE_EH, TABLE_DEBUG, TABLES };

struct cfi {
	struct table tables[TABLES];
	struct cfi_function *functions;
	size_t count;
	size_t capacity;
	size_t dropped;
};

struct record {
	uint64_t offset;
	const uint8_t *id_pos;
	struct cursor c; /* behind the id */
	uint64_t id;
	bool wide;
};

void cfi_free(struct cfi *cfi)
{
	if (!cfi)
		return;
	for (size_t i = 0; i < TABLES; i++) {
		cfi_section_fini(&cfi->tables[i].section);
		free(cfi->tables[i].cies);
	}
	free(cfi->functions);
	free(cfi);
}

/* Whether there is another record. One whose length is not credible ends the table. */
static bool record_next(const struct table *table, struct cursor *c, struct record *ret)
{
	while (cursor_left(c) >= 4) {
		struct record record = {.offset = (uint64_t)(c->pos - table->section.bytes)};
		uint64_t length = cursor_u32(c);
		const void *bytes;

		if (!length && table->section.terminated)
			return false;
		if (!length)
			continue;
		record.wide = length == UINT32_MAX;
		if (record.wide)
			length = cursor_u64(c);
		bytes = cursor_bytes(c, length);
		if (!bytes)
			return false;
		record.c = cursor_init(bytes, length);
		record.id_pos = bytes;
		/* LSB: always 4 bytes in .eh_frame. */
		record.id = cursor_uint(&record.c, record.wide && table->section.debug ? 8 : 4);
		*ret = record;
		return true;
	}
	return false;
}

static bool is_cie(const struct table *table, const struct record *record)
{
	if (!table->section.debug)
		return record->id == 0;
	return record->id == (record->wide ? UINT64_MAX : UINT32_MAX);
}

static const char *read_string(struct cursor *c)
{
	const void *end = memchr(c->pos, 0, cursor_left(c));

	return cursor_bytes(c, end ? (size_t)((const uint8_t *)end - c->pos) + 1 : SIZE_MAX);
}

/* The augmentation data of a CIE. Letters not known end it: 'z' tells its size. */
static bool parse_augmentation(const struct table *table, const char *letters, struct cursor c,
			       struct cie *cie)
{
	uint64_t personality;
	uint8_t encoding;

	for (; *letters; letters++) {
		switch (*letters) {
		case 'R':
			cie->context.pointer_encoding = cursor_u8(&c);
			break;
		case 'L':
			cursor_u8(&c);
			break;
		case 'P':
			encoding = cursor_u8(&c);
			/* Only its size matters, and that is its format's, but for aligned ones. */
			if (encoding != CFI_PE_OMIT &&
			    !cfi_read_pointer(
				    &c, encoding == CFI_PE_ALIGNED ? encoding : encoding & 0x0f,
				    &table->section.bases, &personality))
				return false;
			break;
		case 'S':
			cie->context.signal = true;
			break;
		case 'B': /* ARM's pointer authentication; no data */
			break;
		default:
			return !c.underflow;
		}
	}
	return !c.underflow;
}

static int parse_cie(const struct table *table, const struct record *record, struct cie *cie)
{
	struct cursor c = record->c, augmentation = {};
	const char *letters;
	uint8_t version = cursor_u8(&c);

	/* Some tools write 8-byte ids into .eh_frame too: then this is not a version yet. */
	if (record->wide && !table->section.debug && !version) {
		cursor_bytes(&c, 3);
		version = cursor_u8(&c);
		cie->wide_id = true;
	}
	letters = read_string(&c);
	if (!letters || (version != 1 && version != 3 && version != 4))
		return -EBADMSG;
	if (!strncmp(letters, "eh", 2)) {
		cursor_u64(&c); /* gcc 2's exception table */
		letters += 2;
	}
	if (version == 4 && (cursor_u8(&c) != 8 || cursor_u8(&c) != 0))
		return -EBADMSG;
	cie->context.code_align = cursor_uleb128(&c);
	cie->context.data_align = cursor_sleb128(&c);
	cie->context.ra_reg = version == 1 ? cursor_u8(&c) : cursor_uleb128(&c);
	if (*letters == 'z') {
		uint64_t size = cursor_uleb128(&c);
		const void *bytes = cursor_bytes(&c, size);

		cie->has_size = true;
		if (bytes)
			augmentation = cursor_init(bytes, size);
		letters++;
	} else if (letters[strspn(letters, "SB")]) {
		return -EBADMSG;
	}
	if (c.underflow || !parse_augmentation(table, letters, augmentation, cie))
		return -EBADMSG;
	return cfi_program_init(&cie->context, c, &table->section.bases);
}

static int add_cie(struct table *table, const struct record *record)
{
	struct cie cie = {.offset = record->offset};
	int err;

	if (table->cie_count == table->cie_capacity) {
		size_t capacity = table->cie_capacity ? table->cie_capacity * 2 : 16;
		struct cie *cies = reallocarray(table->cies, capacity, sizeof(*cies));

		if (!cies)
			return -ENOMEM;
		table->cies = cies;
		table->cie_capacity = capacity;
	}
	err = parse_cie(table, record, &cie);
	if (err == -ENOMEM)
		return err;
	cie.valid = !err;
	table->cies[table->cie_count++] = cie;
	return 0;
}

static const struct cie *find_cie(const struct table *table, uint64_t offset)
{
	size_t low = 0, high = table->cie_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->cies[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < table->cie_count && table->cies[low].offset == offset ? &table->cies[low]
									   : NULL;
}

/* -EBADMSG: malformed; -ENOENT: well-formed, but of a function that the linker removed. */
static int parse_fde(const struct table *table, const struct record *record,
		     struct cfi_function *ret)
{
	uint64_t back = (uint64_t)(record->id_pos - table->section.bytes) - record->id, size;
	const struct cie *cie = find_cie(table, table->section.debug ? record->id : back);
	struct cursor c = record->c;
	uint8_t encoding;

	if (!cie || !cie->valid)
		return -EBADMSG;
	encoding = cie->context.pointer_encoding;
	if (cie->wide_id)
		cursor_u32(&c);
	if (!cfi_read_pointer(&c, encoding, &table->section.bases, &ret->start) ||
	    !cfi_read_pointer(&c, encoding & 0x0f, &table->section.bases, &size))
		return -EBADMSG;
	if (cie->has_size)
		cursor_bytes(&c, cursor_uleb128(&c));
	if (c.underflow)
		return -EBADMSG;
	if (!ret->start || !size)
		return -ENOENT;
	if (__builtin_add_overflow(ret->start, size, &ret->end))
		return -EBADMSG;
	ret->signal = cie->context.signal;
	ret->from_debug = table->section.debug;
	ret->cie = cie - table->cies;
	ret->program = c.pos;
	ret->program_size = cursor_left(&c);
	return 0;
}

static int add_function(struct cfi *cfi, const struct cfi_function *function)
{
	if (cfi->count == cfi->capacity) {
		size_t capacity = cfi->capacity ? cfi->capacity * 2 : 1024;
		struct cfi_function *functions =
			reallocarray(cfi->functions, capacity, sizeof(*functions));

		if (!functions)
			return -ENOMEM;
		cfi->functions = functions;
		cfi->capacity = capacity;
	}
	cfi->functions[cfi->count++] = *function;
	return 0;
}

static int parse_table(struct cfi *cfi, struct table *table)
{
	struct cursor c = cursor_init(table->section.bytes, table->section.size);
	struct record record;
	int err = 0;

	while (!err && record_next(table, &c, &record))
		if (is_cie(table, &record))
			err = add_cie(table, &record);
	if (err)
		return err;
	c = cursor_init(table->section.bytes, table->section.size);
	while (!err && record_next(table, &c, &record)) {
		struct cfi_function function;

		if (is_cie(table, &record))
			continue;
		err = parse_fde(table, &record, &function);
		if (!err)
			err = add_function(cfi, &function);
		else if (err == -EBADMSG)
			cfi->dropped++;
		if (err != -ENOMEM)
			err = 0;
	}
	if (c.underflow)
		cfi->dropped++;
	return err;
}

static int compare_functions(const void *a, const void *b)
{
	const struct cfi_function *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->from_debug != y->from_debug)
		return x->from_debug - y->from_debug;
	return x->program < y->program ? -1 : x->program > y->program;
}

int cfi_load(struct image *image, struct cfi **ret)
{
	struct cfi *cfi CLEANUP(cfi) = calloc(1, sizeof(*cfi));
	int err;

	if (!cfi)
		return -ENOMEM;
	err = cfi_section_read(image, &cfi->tables[TABLE_EH].section);
	if (!err)
		err = parse_table(cfi, &cfi->tables[TABLE_EH]);
	if (!err || err == -ENOENT)
		err = cfi->count < FEW_FUNCTIONS
			      ? cfi_section_read_debug(image, &cfi->tables[TABLE_DEBUG].section)
			      : 0;
	if (!err && cfi->tables[TABLE_DEBUG].section.size)
		err = parse_table(cfi, &cfi->tables[TABLE_DEBUG]);
	if (err && err != -ENOENT)
		return err;
	if (!cfi->count)
		return -ENOENT;
	qsort(cfi->functions, cfi->count, sizeof(*cfi->functions), compare_functions);
	*ret = take_ptr(cfi);
	return 0;
}

size_t cfi_count(const struct cfi *cfi)
{
	return cfi->count;
}

const struct cfi_function *cfi_get(const struct cfi *cfi, size_t index)
{
	return &cfi->functions[index];
}

size_t cfi_dropped(const struct cfi *cfi)
{
	return cfi->dropped;
}

int cfi_rows(const struct cfi *cfi, const struct cfi_function *function, struct cfi_rows *rows)
{
	const struct table *table = &cfi->tables[function->from_debug ? TABLE_DEBUG : TABLE_EH];
	struct cursor program = cursor_init(function->program, function->program_size);
	int err;

	rows->count = 0;
	err = cfi_program_run(&table->cies[function->cie].context, program, &table->section.bases,
			      function->start, function->end, rows);
	if (err)
		rows->count = 0;
	return err;
}
