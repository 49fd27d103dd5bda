/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/match.h"

#include <errno.h>
#include <string.h>

#define TEXT_MAX_BYTES (1ull << 30)
/* A byte takes a nanosecond to compare, and a tenth of that to search. */
#define WORK_MAX (10ull * 1000 * 1000 * 1000)

void match_text_fini(struct match_text *text)
{
	for (size_t i = 0; i < text->count; i++)
		free(text->segments[i].bytes);
	*text = (struct match_text){};
}

int match_text_read(struct image *image, struct match_text *ret)
{
	struct match_text text __attribute__((cleanup(match_text_fini))) = {};
	struct code code;
	int err = code_load(image, &code);

	if (err)
		return err;
	for (size_t i = 0; i < code.count; i++) {
		const struct code_segment *segment = &code.segments[i];
		uint8_t *bytes;

		if (segment->size > TEXT_MAX_BYTES - text.bytes)
			return -E2BIG;
		bytes = malloc(segment->size);
		if (!bytes)
			return -ENOMEM;
		text.segments[text.count++] = (struct match_segment){
			.vaddr = segment->vaddr,
			.size = code_read(&code, segment->offset, bytes, segment->size),
			.bytes = bytes,
		};
		text.bytes += segment->size;
	}
	*ret = text;
	text.count = 0;
	return 0;
}

struct match_piece match_section(const struct archive *archive, uint32_t section)
{
	return (struct match_piece){section, 0, archive->sections[section].size};
}

struct match_piece match_function(const struct archive *archive, uint32_t function)
{
	const struct archive_function *f = &archive->functions[function];

	return (struct match_piece){f->section, f->offset, f->size};
}

uint32_t match_fixed_bytes(const struct archive *archive, const struct match_piece *piece)
{
	const uint8_t *mask = archive->sections[piece->section].mask + piece->start;
	uint32_t count = 0;

	for (uint32_t i = 0; i < piece->size; i++)
		count += mask[i] & 1;
	return count;
}

static const struct archive_reference *references(const struct archive *archive,
						  const struct match_piece *piece)
{
	return archive->references + archive->sections[piece->section].first_reference;
}

const struct archive_reference *match_next_reference(const struct archive *archive,
						     const struct match_piece *piece,
						     uint32_t *index)
{
	while (*index < archive->sections[piece->section].reference_count) {
		const struct archive_reference *reference = &references(archive, piece)[*index];

		(*index)++;
		if (reference->offset >= piece->start &&
		    reference->offset - piece->start < piece->size &&
		    relocation_field_size(reference->kind) <=
			    piece->size - (reference->offset - piece->start))
			return reference;
	}
	return NULL;
}

static bool same_references(const struct archive *archive, const struct match_piece *a,
			    const struct match_piece *b)
{
	uint32_t i = 0, j = 0;

	for (;;) {
		const struct archive_reference *x = match_next_reference(archive, a, &i);
		const struct archive_reference *y = match_next_reference(archive, b, &j);

		if (!x || !y)
			return !x && !y;
		if (x->kind != y->kind || x->key != y->key || x->addend != y->addend ||
		    x->offset - a->start != y->offset - b->start)
			return false;
	}
}

enum match_likeness match_compare(const struct archive *archive, const struct match_piece *a,
				  const struct match_piece *b)
{
	const struct archive_section *x = &archive->sections[a->section];
	const struct archive_section *y = &archive->sections[b->section];

	if (a->size != b->size || memcmp(x->mask + a->start, y->mask + b->start, a->size))
		return MATCH_DIFFERENT;
	for (uint32_t i = 0; i < a->size; i++)
		if ((x->bytes[a->start + i] ^ y->bytes[b->start + i]) & x->mask[a->start + i])
			return MATCH_DIFFERENT;
	return same_references(archive, a, b) ? MATCH_TWINS : MATCH_ALIKE;
}

/* The longest run of bytes that linkers leave alone: what is searched for. */
static void find_anchor(const struct archive *archive, const struct match_piece *piece,
			uint32_t *start, uint32_t *size)
{
	const uint8_t *mask = archive->sections[piece->section].mask + piece->start;
	uint32_t run = 0;

	*start = *size = 0;
	for (uint32_t i = 0; i < piece->size; i++) {
		run = mask[i] ? run + 1 : 0;
		if (run > *size) {
			*size = run;
			*start = i + 1 - run;
		}
	}
}

static bool same_bytes(const struct archive_section *section, const struct match_piece *piece,
		       const uint8_t *at, uint64_t *work)
{
	const uint8_t *bytes = section->bytes + piece->start, *mask = section->mask + piece->start;

	for (uint32_t i = 0; i < piece->size; i++) {
		(*work)++;
		if ((bytes[i] ^ at[i]) & mask[i])
			return false;
	}
	return true;
}

/* Whether all that the piece refers to has one address each; at is the piece's code. */
static bool is_consistent(const struct archive *archive, const struct match_piece *piece,
			  uint64_t base, const uint8_t *at)
{
	const struct archive_reference *reference, *last = NULL;
	uint64_t target, last_target = 0;
	uint32_t index = 0;

	while ((reference = match_next_reference(archive, piece, &index))) {
		target = relocation_target(reference->kind, at + (reference->offset - piece->start),
					   base + reference->offset, reference->addend);
		if (reference->key == archive->sections[piece->section].key && target != base)
			return false;
		if (last && last->kind == reference->kind && last->key == reference->key &&
		    target != last_target)
			return false;
		last = reference;
		last_target = target;
	}
	return true;
}

void match_search(const struct archive *archive, struct match_text *text,
		  const struct match_piece *piece, int (*func)(uint64_t base, void *context),
		  void *context)
{
	const struct archive_section *section = &archive->sections[piece->section];
	uint32_t anchor, anchor_size;

	find_anchor(archive, piece, &anchor, &anchor_size);
	for (size_t i = 0; i < text->count && anchor_size; i++) {
		const struct match_segment *segment = &text->segments[i];
		const uint8_t *end = segment->bytes + segment->size, *found;
		const uint8_t *from = segment->bytes + anchor;

		if (segment->size < piece->size)
			continue;
		text->work += segment->size / 10;
		/* The last place at which the whole piece would fit. */
		end -= piece->size - anchor - anchor_size;
		while ((found = memmem(from, end - from, section->bytes + piece->start + anchor,
				       anchor_size))) {
			const uint8_t *at = found - anchor;
			uint64_t base = segment->vaddr + (at - segment->bytes) - piece->start;

			if (text->work > WORK_MAX)
				return;
			from = found + 1;
			if (base % section->align || !same_bytes(section, piece, at, &text->work) ||
			    !is_consistent(archive, piece, base, at))
				continue;
			if (func(base, context))
				return;
		}
	}
}

bool match_target(const struct archive *archive, const struct match_text *text, uint32_t section,
		  const struct archive_reference *reference, uint64_t base, uint64_t *ret)
{
	uint64_t vaddr = base + reference->offset;
	size_t size = relocation_field_size(reference->kind);

	for (size_t i = 0; i < text->count; i++) {
		const struct match_segment *segment = &text->segments[i];

		if (vaddr - segment->vaddr >= segment->size ||
		    size > segment->size - (vaddr - segment->vaddr))
			continue;
		*ret = relocation_target(reference->kind, segment->bytes + (vaddr - segment->vaddr),
					 vaddr, reference->addend);
		return true;
	}
	return false;
}

/* What the code before a displacement's bytes makes of it. */
enum lead {
	LEAD_NONE,
	LEAD_ENTRY, /* a call, or a lea */
	LEAD_JUMP,
	LEAD_BRANCH, /* inside of a function */
};

static enum lead lead_of(const uint8_t *displacement)
{
	uint8_t last = displacement[-1], before = displacement[-2];

	if (last == 0xe8 || (before == 0x8d && (last & 0xc7) == 0x05))
		return LEAD_ENTRY;
	if (last == 0xe9)
		return LEAD_JUMP;
	return before == 0x0f && (last & 0xf0) == 0x80 ? LEAD_BRANCH : LEAD_NONE;
}

/* Whether a conditional or short jump leads to an address from near it. */
static bool is_short_target(const struct match_segment *segment, uint64_t vaddr)
{
	for (int distance = INT8_MIN; distance <= INT8_MAX; distance++) {
		/* Of the byte with the distance; the jump ends behind it. */
		uint64_t at = vaddr - 1 - distance - segment->vaddr;
		uint8_t opcode;

		if (at < 1 || at >= segment->size || (int8_t)segment->bytes[at] != distance)
			continue;
		opcode = segment->bytes[at - 1];
		if (opcode == 0xeb || (opcode & 0xf0) == 0x70)
			return true;
	}
	return false;
}

bool match_is_entry(const struct match_text *text, uint64_t vaddr)
{
	bool jump = false, branch = false;

	for (size_t i = 0; i < text->count; i++) {
		const struct match_segment *segment = &text->segments[i];

		branch |= is_short_target(segment, vaddr);
		for (uint64_t at = 2; at + 4 <= segment->size; at++) {
			enum lead lead = lead_of(segment->bytes + at);
			int32_t distance;

			if (lead == LEAD_NONE)
				continue;
			memcpy(&distance, segment->bytes + at, sizeof(distance));
			if (segment->vaddr + at + 4 + (uint64_t)(int64_t)distance != vaddr)
				continue;
			if (lead == LEAD_ENTRY)
				return true;
			jump |= lead == LEAD_JUMP;
			branch |= lead == LEAD_BRANCH;
		}
	}
	/* Other functions end in jumps to this one, but branches do not leave a function. */
	return jump && !branch;
}
