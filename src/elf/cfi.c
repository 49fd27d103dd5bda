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
#include <gelf.h>
#include <string.h>
#include <sys/stat.h>

/* With fewer functions than this .eh_frame is a startup file's remainder. */
#define FEW_FUNCTIONS  8
#define TABLE_MAX_SIZE (1u << 30)

struct cie {
	uint64_t offset; /* of its record, in the table */
	struct cfi_context context;
	bool has_size; /* 'z': FDEs have augmentation data */
	bool wide_id;  /* ids are 8 bytes */
	bool valid;
};

struct table {
	uint8_t *bytes;
	size_t size;
	struct cfi_bases bases;
	bool debug;
	bool terminated; /* the size is not known: ends at the first zero length */
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
		free(cfi->tables[i].bytes);
		free(cfi->tables[i].cies);
	}
	free(cfi->functions);
	free(cfi);
}

/* Whether there is another record. One whose length is not credible ends the table. */
static bool record_next(const struct table *table, struct cursor *c, struct record *ret)
{
	while (cursor_left(c) >= 4) {
		struct record record = {.offset = (uint64_t)(c->pos - table->bytes)};
		uint64_t length = cursor_u32(c);
		const void *bytes;

		if (!length && table->terminated)
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
		record.id = cursor_uint(&record.c, record.wide && table->debug ? 8 : 4);
		*ret = record;
		return true;
	}
	return false;
}

static bool is_cie(const struct table *table, const struct record *record)
{
	if (!table->debug)
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
				    &table->bases, &personality))
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
	if (record->wide && !table->debug && !version) {
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
		augmentation = cursor_init(bytes, bytes ? size : 0);
		letters++;
	} else if (letters[strspn(letters, "SB")]) {
		return -EBADMSG;
	}
	if (c.underflow || !parse_augmentation(table, letters, augmentation, cie))
		return -EBADMSG;
	return cfi_program_init(&cie->context, c, &table->bases);
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
	uint64_t back = (uint64_t)(record->id_pos - table->bytes) - record->id, size;
	const struct cie *cie = find_cie(table, table->debug ? record->id : back);
	struct cursor c = record->c;
	uint8_t encoding;

	if (!cie || !cie->valid)
		return -EBADMSG;
	encoding = cie->context.pointer_encoding;
	if (cie->wide_id)
		cursor_u32(&c);
	if (!cfi_read_pointer(&c, encoding, &table->bases, &ret->start) ||
	    !cfi_read_pointer(&c, encoding & 0x0f, &table->bases, &size))
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
	ret->from_debug = table->debug;
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
	struct cursor c = cursor_init(table->bytes, table->size);
	struct record record;
	int err = 0;

	while (!err && record_next(table, &c, &record))
		if (is_cie(table, &record))
			err = add_cie(table, &record);
	if (err)
		return err;
	c = cursor_init(table->bytes, table->size);
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

static int read_file(struct image *image, uint64_t offset, uint64_t size, struct table *table)
{
	struct stat st;

	if (fstat(image_fd(image), &st))
		return -errno;
	if (offset >= (uint64_t)st.st_size)
		return -ENOENT;
	if (size > (uint64_t)st.st_size - offset)
		size = (uint64_t)st.st_size - offset;
	if (size > TABLE_MAX_SIZE)
		return -E2BIG;
	table->bytes = malloc(size ? size : 1);
	if (!table->bytes)
		return -ENOMEM;
	while (table->size < size) {
		ssize_t n = pread(image_fd(image), table->bytes + table->size, size - table->size,
				  offset + table->size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		table->size += n;
	}
	table->bases.bytes = table->bytes;
	return 0;
}

static Elf_Scn *find_section(Elf *elf, const char *name, GElf_Shdr *shdr)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *found;

		if (!gelf_getshdr(scn, shdr) || shdr->sh_type == SHT_NOBITS)
			continue;
		found = elf_strptr(elf, names, shdr->sh_name);
		if (found && !strcmp(found, name))
			return scn;
	}
	return NULL;
}

/* What datarel means outside .eh_frame_hdr; nothing for x86-64 is known to write it. */
static uint64_t data_base(Elf *elf)
{
	GElf_Shdr shdr;

	return find_section(elf, ".got", &shdr) ? shdr.sh_addr : 0;
}

/* Without sections: .eh_frame_hdr, of which only the pointer is needed. */
static int read_by_header(struct image *image, struct table *table)
{
	GElf_Phdr phdr = {}, load;
	uint64_t start, offset;
	size_t count, size, i;
	const uint8_t *bytes;
	struct cfi_bases bases;
	struct cursor c;

	if (elf_getphdrnum(image_elf(image), &count))
		return -ENOENT;
	for (i = 0; i < count; i++)
		if (gelf_getphdr(image_elf(image), i, &phdr) && phdr.p_type == PT_GNU_EH_FRAME)
			break;
	bytes = i < count ? image_bytes(image, phdr.p_vaddr, 16, &size) : NULL;
	if (!bytes)
		return -ENOENT;
	bases = (struct cfi_bases){bytes, phdr.p_vaddr, phdr.p_vaddr};
	c = cursor_init(bytes, size);
	if (cursor_u8(&c) != 1)
		return -ENOENT;
	i = cursor_u8(&c);
	cursor_bytes(&c, 2);
	if (!cfi_read_pointer(&c, i, &bases, &start) ||
	    image_vaddr_to_offset(image, start, &offset))
		return -ENOENT;
	/* It ends somewhere in its segment. */
	for (i = 0; i < count; i++)
		if (gelf_getphdr(image_elf(image), i, &load) && load.p_type == PT_LOAD &&
		    start - load.p_vaddr < load.p_filesz)
			break;
	if (i == count)
		return -ENOENT;
	table->terminated = true;
	table->bases.vaddr = start;
	return read_file(image, offset, load.p_filesz - (start - load.p_vaddr), table);
}

static int read_eh_frame(struct image *image, struct table *table)
{
	GElf_Shdr shdr;

	if (find_section(image_elf(image), ".eh_frame", &shdr)) {
		table->bases.vaddr = shdr.sh_addr;
		table->bases.data = data_base(image_elf(image));
		if (!read_file(image, shdr.sh_offset, shdr.sh_size, table) && table->size)
			return 0;
		free(table->bytes);
		*table = (struct table){};
	}
	return read_by_header(image, table);
}

/* May be compressed, so libelf reads it. */
static int read_debug_frame(struct image *image, struct table *table)
{
	const Elf_Data *data;
	GElf_Shdr shdr;
	Elf_Scn *scn = find_section(image_elf(image), ".debug_frame", &shdr);

	if (!scn || shdr.sh_size > TABLE_MAX_SIZE)
		return -ENOENT;
	if (shdr.sh_flags & SHF_COMPRESSED) {
		GElf_Chdr chdr;

		if (!gelf_getchdr(scn, &chdr) || chdr.ch_size > TABLE_MAX_SIZE ||
		    elf_compress(scn, 0, 0) < 0)
			return -ENOENT;
	}
	data = elf_getdata(scn, NULL);
	if (!data || !data->d_buf || !data->d_size)
		return -ENOENT;
	table->bytes = malloc(data->d_size);
	if (!table->bytes)
		return -ENOMEM;
	memcpy(table->bytes, data->d_buf, data->d_size);
	table->size = data->d_size;
	table->debug = true;
	table->bases = (struct cfi_bases){.bytes = table->bytes};
	return 0;
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
	err = read_eh_frame(image, &cfi->tables[TABLE_EH]);
	if (!err)
		err = parse_table(cfi, &cfi->tables[TABLE_EH]);
	if (!err || err == -ENOENT)
		err = cfi->count < FEW_FUNCTIONS
			      ? read_debug_frame(image, &cfi->tables[TABLE_DEBUG])
			      : 0;
	if (!err && cfi->tables[TABLE_DEBUG].size)
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
	err = cfi_program_run(&table->cies[function->cie].context, program, &table->bases,
			      function->start, function->end, rows);
	if (err)
		rows->count = 0;
	return err;
}
