/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/look_alikes.h"

static bool same_piece(const struct match_piece *a, const struct match_piece *b)
{
	return a->section == b->section && a->start == b->start;
}

static void add_if_alike(const struct archive *archive, const struct match_piece *piece,
			 const struct match_piece *other, struct look_alikes *ret)
{
	enum match_likeness likeness =
		same_piece(piece, other) ? MATCH_TWINS : match_compare(archive, piece, other);

	switch (likeness) {
	case MATCH_TWINS:
		ret->more_twins |= ret->twin_count == LOOK_ALIKES_MAX;
		if (ret->twin_count < LOOK_ALIKES_MAX)
			ret->twins[ret->twin_count++] = *other;
		break;
	case MATCH_ALIKE:
		ret->more_alikes |= ret->alike_count == LOOK_ALIKES_MAX;
		if (ret->alike_count < LOOK_ALIKES_MAX)
			ret->alikes[ret->alike_count++] = *other;
		break;
	case MATCH_DIFFERENT:
		break;
	}
}

void look_alikes_find(const struct archive *archive, const struct match_piece *piece,
		      struct look_alikes *ret)
{
	struct match_piece last = {.section = ARCHIVE_NONE};

	ret->twin_count = ret->alike_count = 0;
	ret->more_twins = ret->more_alikes = false;
	if (piece->size == archive->sections[piece->section].size) {
		for (uint32_t i = 0; i < archive->section_count; i++) {
			const struct match_piece other = match_section(archive, i);

			add_if_alike(archive, piece, &other, ret);
		}
		return;
	}
	for (uint32_t i = 0; i < archive->function_count; i++) {
		const struct match_piece other = match_function(archive, i);

		/* One function has many names. */
		if (!same_piece(&last, &other))
			add_if_alike(archive, piece, &other, ret);
		last = other;
	}
}

/* Where b is, if a is at vaddr and the linker took all of their object; 0 if that is not known. */
static uint64_t neighbour(const struct archive *archive, const struct match_piece *a,
			  uint64_t vaddr, const struct match_piece *b)
{
	const struct archive_section *sections = archive->sections;
	uint64_t at = vaddr - a->start;

	if (a->section == b->section)
		return at + b->start;
	if (b->section < a->section || sections[a->section].member != sections[b->section].member ||
	    !sections[a->section].plain || !sections[b->section].plain)
		return 0;
	at += sections[a->section].size;
	for (uint32_t i = a->section + 1; i <= b->section; i++) {
		if (!sections[i].plain)
			continue;
		at += -at % sections[i].align;
		if (i < b->section)
			at += sections[i].size;
	}
	return at + b->start;
}

bool look_alikes_order(const struct archive *archive, const struct look_alikes *look_alikes,
		       const struct match_piece *piece, const uint64_t *bases, size_t count,
		       bool closely, uint64_t *ret)
{
	const struct match_piece *twins = look_alikes->twins;
	uint64_t base = 0;

	if (count < 2 || count != look_alikes->twin_count || look_alikes->more_twins)
		return false;
	for (size_t i = 0; i < count; i++) {
		uint64_t here = bases[i] + twins[i].start, next, expected;

		if (i + 1 < count) {
			next = bases[i + 1] + twins[i + 1].start;
			expected = neighbour(archive, &twins[i], here, &twins[i + 1]);
			if (next <= here || next > expected || (closely && next != expected))
				return false;
		}
		if (same_piece(&twins[i], piece))
			base = bases[i];
	}
	*ret = base;
	return base;
}

bool look_alikes_is_public(const struct archive *archive, const struct match_piece *piece)
{
	const struct archive_section *section = &archive->sections[piece->section];

	for (uint32_t i = 0; i < section->function_count; i++) {
		const struct archive_function *function =
			&archive->functions[section->first_function + i];

		if (function->offset == piece->start && !function->hidden)
			return true;
	}
	return false;
}
