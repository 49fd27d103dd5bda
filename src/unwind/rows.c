/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From spans of code to one table of rows.
 *
 * The walker looks up the last byte of calls, so a row of which no call's last byte is part is
 * never asked for: without these a table is a tenth. What is left out is then answered by the row
 * before, and that is right exactly because nobody asks. Between spans there is a gap, of which a
 * row tells, so that no address is answered with the nearest function below.
 */
#include "unwind/rows.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "elf/callsites.h"
#include "elf/cfi.h"
#include "elf/code.h"
#include "unwind/spans.h"
#include "unwind/synth.h"

/* Functions are aligned to 16 bytes. */
#define PADDING 15
/* Bytes from an entry point to the last call of its own; glibc's linker has 80. */
#define ENTRY_CODE 256

struct builder {
	const struct code *code;
	const struct cfi *cfi;
	struct spans spans;
	struct callsites callsites;
	size_t cursor;
	bool all;
	uint64_t entry;
	uint64_t entry_offset;
	struct synth_targets targets;
	struct cfi_rows scratch;
	struct unwind_rows *rows;
	size_t capacity;
};

static const struct unwind_rule gap_rule = {.cfa_kind = CFA_GAP};

void unwind_rows_free(struct unwind_rows *rows)
{
	if (!rows)
		return;
	free(rows->entries);
	free(rows);
}

static void builder_fini(struct builder *b)
{
	spans_fini(&b->spans);
	callsites_fini(&b->callsites);
	synth_targets_fini(&b->targets);
	cfi_rows_fini(&b->scratch);
}

static int append(struct builder *b, uint64_t offset, const struct unwind_rule *rule)
{
	struct unwind_rows *rows = b->rows;

	/* A signal frame's row may begin on the last byte of the function before. */
	while (rows->count && rows->entries[rows->count - 1].offset >= offset)
		rows->count--;
	if (rows->count == UNWIND_MAX_ROWS)
		return -E2BIG;
	if (rows->count == b->capacity) {
		size_t capacity = b->capacity ? b->capacity * 2 : 256;
		struct rule_row *entries = reallocarray(rows->entries, capacity, sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		rows->entries = entries;
		b->capacity = capacity;
	}
	rows->entries[rows->count++] = (struct rule_row){(uint32_t)offset, *rule};
	return 0;
}

/* A rule for [start, end), if anything can ask for it. */
static int add_range(struct builder *b, uint64_t start, uint64_t end,
		     const struct unwind_rule *rule)
{
	const struct unwind_rule *last =
		b->rows->count ? &b->rows->entries[b->rows->count - 1].rule : &gap_rule;

	if (start >= end || !memcmp(last, rule, sizeof(*rule)))
		return 0;
	/* Nothing calls from a signal frame: it is returned to. */
	if (!b->all && rule->cfa_kind != CFA_SIGNAL &&
	    !callsites_any(&b->callsites, &b->cursor, start, end))
		return 0;
	return append(b, start, rule);
}

/*
 * The entry point without a description is hand-written code that calls on and never returns, such
 * as the dynamic linker's: where it is in a gap, it is the end of stacks.
 */
static int add_gap(struct builder *b, uint64_t start, uint64_t end)
{
	static const struct unwind_rule end_rule = {.cfa_kind = CFA_END};
	uint64_t entry_end =
		b->entry_offset + ENTRY_CODE < end ? b->entry_offset + ENTRY_CODE : end;
	int err;

	if (b->entry && start <= b->entry_offset && b->entry_offset < end) {
		err = add_range(b, start, b->entry_offset, &gap_rule);
		if (!err)
			err = add_range(b, b->entry_offset, entry_end, &end_rule);
		return err ? err : add_range(b, entry_end, end, &gap_rule);
	}
	if (start < end && end - start <= PADDING &&
	    !callsites_any(&b->callsites, &b->cursor, start, end))
		return 0;
	return add_range(b, start, end, &gap_rule);
}

/* How many of the targets lie below an address. */
static size_t targets_below(const struct builder *b, uint64_t vaddr)
{
	size_t low = 0, high = b->targets.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (b->targets.addresses[middle] < vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int decode(struct builder *b, const struct span *span, uint64_t vaddr)
{
	uint8_t *bytes _cleanup_free_ = malloc(span->end - span->start);
	size_t first = targets_below(b, vaddr), behind;
	struct synth_code code = {
		.bytes = bytes,
		.vaddr = vaddr,
		.entry = b->entry,
		.many = span->many,
		.fragment = span->fragment,
	};
	int err;

	if (!bytes)
		return -ENOMEM;
	if (span->many && b->targets.count) {
		behind = targets_below(b, vaddr + (span->end - span->start));
		code.starts = b->targets.addresses + first;
		code.start_count = behind - first;
	}
	code.size = code_read(b->code, span->start, bytes, span->end - span->start);
	err = synth_rows(&code, &b->scratch);
	if (!err && b->scratch.count)
		b->rows->synthesized++;
	/* Where functions begin was a guess, so that is what the rules are. */
	for (size_t i = 0; span->many && i < b->scratch.count; i++)
		b->scratch.entries[i].rule.guessed = b->scratch.entries[i].rule.cfa_kind > CFA_END;
	return err;
}

static int add_span(struct builder *b, const struct span *span)
{
	const struct code_segment *segment = code_at_offset(b->code, span->start);
	uint64_t to_offset = segment->offset - segment->vaddr;
	const struct cfi_rows *rows = &b->scratch;
	int err;

	if (span->function)
		err = cfi_rows(b->cfi, span->function, &b->scratch);
	else if (b->all || callsites_any(&b->callsites, &b->cursor, span->start, span->end))
		err = decode(b, span, span->start - to_offset);
	else
		return 0;
	if (err == -EBADMSG) {
		b->rows->dropped_fdes++;
		return add_gap(b, span->start, span->end);
	}
	for (size_t i = 0; !err && i < rows->count; i++) {
		uint64_t start = rows->entries[i].start + to_offset;
		uint64_t end =
			i + 1 < rows->count ? rows->entries[i + 1].start + to_offset : span->end;

		/* A signal frame's span starts a byte early. */
		if (!i && span->function && span->start < start)
			start = span->start;
		err = add_range(b, start, end < span->end ? end : span->end,
				&rows->entries[i].rule);
	}
	return err;
}

static int add_spans(struct builder *b)
{
	const struct spans *spans = &b->spans;
	uint64_t end = 0;
	int err = 0;

	for (size_t i = 0; !err && i < spans->count; i++) {
		err = add_gap(b, end, spans->entries[i].start);
		if (!err)
			err = add_span(b, &spans->entries[i]);
		end = spans->entries[i].end;
	}
	return err ? err : add_range(b, end, UINT32_MAX, &gap_rule);
}

/* Where functions without symbols start, as far as the code tells. */
static int find_targets(struct builder *b)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	int err = 0;

	for (size_t i = 0; !err && i < b->code->count; i++) {
		const struct code_segment *segment = &b->code->segments[i];
		uint8_t *grown = realloc(bytes, segment->size);
		size_t size;

		if (!grown)
			return -ENOMEM;
		bytes = grown;
		size = code_read(b->code, segment->offset, bytes, segment->size);
		err = synth_targets_add(&b->targets, bytes, size, segment->vaddr);
	}
	synth_targets_sort(&b->targets);
	return err;
}

static int build(struct builder *b, struct image *image, const struct symtab *symtab)
{
	GElf_Ehdr ehdr;
	int err = callsites_scan(b->code, &b->callsites);

	if (!err)
		err = spans_collect(image, b->code, b->cfi, symtab, &b->spans);
	if (!err && b->spans.sparse)
		err = find_targets(b);
	if (err)
		return err;
	if (!b->spans.count)
		return -ENOENT;
	if (gelf_getehdr(image_elf(image), &ehdr) &&
	    !image_vaddr_to_offset(image, ehdr.e_entry, &b->entry_offset))
		b->entry = ehdr.e_entry;
	b->rows->dropped_fdes = b->spans.dropped + (b->cfi ? cfi_dropped(b->cfi) : 0);
	err = add_spans(b);
	/* No table is empty: an image without calls has a row that says so. */
	if (!err && !b->rows->count)
		err = append(b, 0, &gap_rule);
	for (size_t i = 0; i < b->rows->count; i++)
		b->rows->unsupported_rows += b->rows->entries[i].rule.cfa_kind == CFA_UNSUPPORTED;
	return err;
}

int unwind_rows_build(struct image *image, const struct symtab *symtab, bool all,
		      struct unwind_rows **ret)
{
	struct unwind_rows *rows CLEANUP(unwind_rows) = calloc(1, sizeof(*rows));
	struct cfi *cfi CLEANUP(cfi) = NULL;
	struct code code;
	struct builder b = {.code = &code, .all = all, .rows = rows};
	int err;

	if (!rows)
		return -ENOMEM;
	err = code_load(image, &code);
	if (err)
		return err;
	err = cfi_load(image, &cfi);
	if (err && err != -ENOENT)
		return err;
	b.cfi = cfi;
	err = build(&b, image, symtab);
	builder_fini(&b);
	if (err)
		return err;
	*ret = take_ptr(rows);
	return 0;
}

struct unwind_rule unwind_rows_lookup(const struct unwind_rows *rows, uint64_t offset)
{
	size_t low = 0, high = rows->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (rows->entries[middle].offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? rows->entries[low - 1].rule : gap_rule;
}
