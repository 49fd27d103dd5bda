/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Spans of code.
 *
 * Where functions overlap, the one that starts later holds from there on, as in the search of
 * libgcc and glibc, which take the last function that starts at or before an address. Of two with
 * one start the first in the file holds. Symbols only count where nothing is described.
 */
#include "unwind/spans.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "unwind/synth.h"

#define MAX_AREAS 256

/* A part of the file that is code: an executable section, or without sections a segment. */
struct area {
	uint64_t start;
	uint64_t end;
};

struct collector {
	const struct code *code;
	struct area areas[MAX_AREAS];
	size_t area_count;
	struct span *spans;
	size_t count;
	size_t capacity;
	size_t described; /* the first so many spans are the cfi's */
	uint64_t described_bytes;
	/* The symbol at hand: several may have one start. */
	uint64_t symbol_start;
	uint64_t symbol_size;
	bool symbol_is_fragment;
	uint64_t symbol_end; /* of the one before */
};

void spans_fini(struct spans *spans)
{
	free(spans->entries);
	*spans = (struct spans){};
}

static int add_span(struct collector *c, const struct span *span)
{
	if (span->start >= span->end)
		return 0;
	if (c->count == c->capacity) {
		size_t capacity = c->capacity ? c->capacity * 2 : 1024;
		struct span *spans = reallocarray(c->spans, capacity, sizeof(*spans));

		if (!spans)
			return -ENOMEM;
		c->spans = spans;
		c->capacity = capacity;
	}
	c->spans[c->count++] = *span;
	return 0;
}

static int compare_areas(const void *a, const void *b)
{
	const struct area *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static void add_area(struct collector *c, uint64_t start, uint64_t end)
{
	if (c->area_count < MAX_AREAS && start < end)
		c->areas[c->area_count++] = (struct area){start, end};
}

static void find_areas(struct collector *c, Elf *elf)
{
	Elf_Scn *scn = NULL;
	size_t sections;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(elf, scn))) {
		const struct code_segment *segment;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_PROGBITS ||
		    !(shdr.sh_flags & SHF_EXECINSTR) || !(shdr.sh_flags & SHF_ALLOC))
			continue;
		segment = code_at_offset(c->code, shdr.sh_offset);
		if (segment && shdr.sh_size <= segment->offset + segment->size - shdr.sh_offset)
			add_area(c, shdr.sh_offset, shdr.sh_offset + shdr.sh_size);
	}
	sections = c->area_count;
	for (size_t i = 0; !sections && i < c->code->count; i++)
		add_area(c, c->code->segments[i].offset,
			 c->code->segments[i].offset + c->code->segments[i].size);
	qsort(c->areas, c->area_count, sizeof(c->areas[0]), compare_areas);
}

static int compare_spans(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	/* cfi_get()'s order is that of the addresses. */
	return x->function < y->function ? -1 : x->function > y->function;
}

/* Sorts, and cuts what overlaps. */
static void settle(struct collector *c)
{
	size_t kept = 0;

	if (!c->count)
		return;
	qsort(c->spans, c->count, sizeof(*c->spans), compare_spans);
	for (size_t i = 0; i < c->count; i++) {
		struct span *last = kept ? &c->spans[kept - 1] : NULL;

		if (last && last->start == c->spans[i].start)
			continue;
		if (last && last->end > c->spans[i].start)
			last->end = c->spans[i].start;
		c->spans[kept++] = c->spans[i];
	}
	c->count = kept;
}

static int add_described(struct collector *c, const struct cfi *cfi, size_t *dropped)
{
	int err = 0;

	for (size_t i = 0; !err && i < cfi_count(cfi); i++) {
		const struct cfi_function *function = cfi_get(cfi, i);
		const struct code_segment *segment = code_at_vaddr(c->code, function->start);
		struct span span = {.function = function};
		uint64_t size = function->end - function->start;

		if (!segment) {
			++*dropped;
			continue;
		}
		span.start = function->start - segment->vaddr + segment->offset;
		if (size > segment->offset + segment->size - span.start)
			size = segment->offset + segment->size - span.start;
		span.end = span.start + size;
		if (function->signal && span.start > segment->offset)
			span.start--;
		err = add_span(c, &span);
	}
	settle(c);
	c->described = c->count;
	for (size_t i = 0; i < c->count; i++)
		c->described_bytes += c->spans[i].end - c->spans[i].start;
	return err;
}

/* The first described span that ends behind an offset. */
static const struct span *described_behind(const struct collector *c, uint64_t offset)
{
	size_t low = 0, high = c->described;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (c->spans[middle].end <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < c->described ? &c->spans[low] : NULL;
}

static uint64_t area_end(const struct collector *c, uint64_t offset)
{
	for (size_t i = 0; i < c->area_count; i++)
		if (offset >= c->areas[i].start && offset < c->areas[i].end)
			return c->areas[i].end;
	return offset;
}

/* Adds the symbol at hand, if nothing describes its start. next: the start of the one behind. */
static int add_symbol(struct collector *c, uint64_t next)
{
	const struct code_segment *segment = code_at_vaddr(c->code, c->symbol_start);
	const struct span *described;
	struct span span = {
		.many = !c->symbol_size,
		.fragment = c->symbol_is_fragment,
	};
	uint64_t size = c->symbol_size ? c->symbol_size : next - c->symbol_start;

	/* Symbols inside of others are labels. */
	if (!segment || c->symbol_start < c->symbol_end)
		return 0;
	span.start = c->symbol_start - segment->vaddr + segment->offset;
	span.end = area_end(c, span.start);
	if (size < span.end - span.start)
		span.end = span.start + size;
	if (span.end - span.start > SYNTH_MAX_SIZE)
		span.end = span.start + SYNTH_MAX_SIZE;
	described = described_behind(c, span.start);
	if (described && described->start < span.end)
		span.end = described->start > span.start ? described->start : span.start;
	c->symbol_end = c->symbol_start + (span.end - span.start);
	return add_span(c, &span);
}

static int collect_symbol(const struct symbol *symbol, void *context)
{
	struct collector *c = context;
	int err = 0;

	if (symbol->start == c->symbol_start) {
		if (symbol->size > c->symbol_size)
			c->symbol_size = symbol->size;
		return 0;
	}
	if (c->symbol_start)
		err = add_symbol(c, symbol->start);
	c->symbol_start = symbol->start;
	c->symbol_size = symbol->size;
	/* What gcc moves out of the way. */
	c->symbol_is_fragment = strstr(symbol->name, ".cold");
	return err;
}

/* Everything between spans, in pieces. */
static int add_rest(struct collector *c, uint64_t start, uint64_t end)
{
	int err = 0;

	for (; !err && start < end; start += SYNTH_MAX_SIZE) {
		struct span span = {
			.start = start,
			.end = end,
			.many = true,
			.fragment = true,
		};

		if (end - start > SYNTH_MAX_SIZE)
			span.end = start + SYNTH_MAX_SIZE;
		err = add_span(c, &span);
	}
	return err;
}

static int fill_gaps(struct collector *c)
{
	size_t i = 0, count = c->count;
	uint64_t pos = 0;
	int err = 0;

	for (size_t a = 0; !err && a < c->area_count; a++) {
		const struct area *area = &c->areas[a];

		if (pos < area->start)
			pos = area->start;
		for (; !err && i < count && c->spans[i].start < area->end; i++) {
			uint64_t start = c->spans[i].start;

			if (start > pos)
				err = add_rest(c, pos, start);
			if (c->spans[i].end > pos)
				pos = c->spans[i].end;
		}
		if (!err && pos < area->end)
			err = add_rest(c, pos, area->end);
		if (pos < area->end)
			pos = area->end;
	}
	settle(c);
	return err;
}

int spans_collect(struct image *image, const struct code *code, const struct cfi *cfi,
		  const struct symtab *symtab, struct spans *ret)
{
	struct collector c = {.code = code};
	uint64_t total = 0;
	bool sparse;
	size_t dropped = 0;
	int err = 0;

	find_areas(&c, image_elf(image));
	for (size_t i = 0; i < c.area_count; i++)
		total += c.areas[i].end - c.areas[i].start;
	if (cfi)
		err = add_described(&c, cfi, &dropped);
	if (!err && symtab)
		err = symtab_for_each(symtab, collect_symbol, &c);
	if (!err && c.symbol_start)
		err = add_symbol(&c, UINT64_MAX);
	settle(&c);
	sparse = c.described_bytes < total / 2;
	if (!err && sparse)
		err = fill_gaps(&c);
	*ret = (struct spans){c.spans, c.count, dropped, total, sparse};
	return err;
}
