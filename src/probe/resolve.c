/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/resolve.h"

#include <errno.h>
#include <string.h>

#include "probe/look_alikes.h"

/* With fewer bytes that linkers leave alone, a match needs a reference that fits. */
#define SECTION_FIXED_MIN 24
/* With fewer, it must also look as if a function began there. */
#define ENTRY_FIXED_MIN 16
/* The same as the first for a function whose section is not there as a whole. */
#define FUNCTION_FIXED_MIN 48
/* malloc -> wrapper -> function -> what it needs */
#define DEPTH_MAX 4
#define HITS_MAX  LOOK_ALIKES_MAX
/* Sections that are asked whether they are in the image and refer to a function. */
#define CALLERS_MAX 256

#define UNCLEAR UINT64_MAX

struct hits {
	uint64_t bases[HITS_MAX]; /* ascending in each segment */
	size_t count;
	bool too_many;
};

int resolve_init(struct resolve *resolve, const struct archive *archive, struct image *image)
{
	*resolve = (struct resolve){
		.archive = archive,
		.states = calloc(archive->section_count + 1, sizeof(*resolve->states)),
		.starts = calloc(archive->function_count + 1, sizeof(*resolve->starts)),
		.implied = calloc(archive->name_count + 1, sizeof(*resolve->implied)),
	};
	if (!resolve->states || !resolve->starts || !resolve->implied)
		return -ENOMEM;
	return match_text_read(image, &resolve->text);
}

void resolve_fini(struct resolve *resolve)
{
	match_text_fini(&resolve->text);
	free(resolve->states);
	free(resolve->starts);
	free(resolve->implied);
}

static enum resolve_state find_section(struct resolve *resolve, uint32_t section, int depth);

/* The next reference of a piece that is by name. */
static const struct archive_reference *next_named(const struct archive *archive,
						  const struct match_piece *piece, uint32_t *index)
{
	const struct archive_reference *reference;

	do
		reference = match_next_reference(archive, piece, index);
	while (reference && reference->key & ARCHIVE_KEY_SECTION);
	return reference;
}

static void find_callees(struct resolve *resolve, const struct match_piece *piece, int depth)
{
	const struct archive *archive = resolve->archive;
	const struct archive_reference *reference;
	uint32_t index = 0;

	while ((reference = next_named(archive, piece, &index))) {
		uint32_t i = archive->names[reference->key].first_function;

		for (; i != ARCHIVE_NONE; i = archive->functions[i].next_by_name)
			find_section(resolve, archive->functions[i].section, depth + 1);
	}
}

static bool refers_to(const struct archive *archive, const struct match_piece *piece, uint32_t name)
{
	const struct archive_reference *reference;
	uint32_t index = 0;

	while ((reference = next_named(archive, piece, &index)))
		if (reference->key == name)
			return true;
	return false;
}

/* Each one asked is a search more, so only for what is asked first. */
static void find_callers(struct resolve *resolve, uint32_t name, int depth)
{
	const struct archive *archive = resolve->archive;
	size_t asked = 0;

	for (uint32_t i = 0; i < archive->section_count && asked < CALLERS_MAX && !depth; i++) {
		const struct match_piece piece = match_section(archive, i);

		if (resolve->states[i] != RESOLVE_UNKNOWN || !refers_to(archive, &piece, name) ||
		    match_fixed_bytes(archive, &piece) < SECTION_FIXED_MIN)
			continue;
		find_section(resolve, i, depth + 1);
		asked++;
	}
}

enum verdict {
	VERDICT_UNKNOWN,
	VERDICT_FITS,
	VERDICT_CONTRADICTS,
};

/* Whether a reference leads to where its function was found. */
static enum verdict judge_reference(const struct resolve *resolve, const struct match_piece *piece,
				    const struct archive_reference *reference, uint64_t base)
{
	const struct archive *archive = resolve->archive;
	uint32_t i = archive->names[reference->key].first_function;
	bool found = false, fits = false;
	uint64_t target;

	if (!match_target(archive, &resolve->text, piece->section, reference, base, &target))
		return VERDICT_UNKNOWN;
	for (; i != ARCHIVE_NONE; i = archive->functions[i].next_by_name) {
		found |= resolve->starts[i] != 0;
		fits |= resolve->starts[i] && resolve->starts[i] == target;
	}
	return fits ? VERDICT_FITS : found ? VERDICT_CONTRADICTS : VERDICT_UNKNOWN;
}

/* One contradiction is enough. */
static enum verdict judge(const struct resolve *resolve, const struct match_piece *piece,
			  uint64_t base)
{
	const struct archive_reference *reference;
	enum verdict verdict = VERDICT_UNKNOWN;
	uint32_t index = 0;

	while ((reference = next_named(resolve->archive, piece, &index))) {
		enum verdict one = judge_reference(resolve, piece, reference, base);

		if (one == VERDICT_CONTRADICTS)
			return one;
		if (one == VERDICT_FITS)
			verdict = one;
	}
	return verdict;
}

/* Whether a reference that another piece of the same bytes does not have leads to its function. */
static bool is_told_from(const struct resolve *resolve, const struct match_piece *piece,
			 const struct match_piece *other, uint64_t base)
{
	const struct archive *archive = resolve->archive;
	const struct archive_reference *reference, *its;
	uint32_t index = 0;

	while ((reference = next_named(archive, piece, &index))) {
		bool shared = false;
		uint32_t i = 0;

		if (judge_reference(resolve, piece, reference, base) != VERDICT_FITS)
			continue;
		while (!shared && (its = next_named(archive, other, &i)))
			shared = its->offset - other->start == reference->offset - piece->start &&
				 its->key == reference->key && its->addend == reference->addend;
		if (!shared)
			return true;
	}
	return false;
}

/* Whether a place can be no look-alike of the piece. */
static bool is_told_apart(const struct resolve *resolve, const struct match_piece *piece,
			  const struct look_alikes *alikes, uint64_t base)
{
	const struct archive_reference *reference;
	uint32_t index = 0;

	for (size_t i = 0; i < alikes->alike_count; i++)
		if (!is_told_from(resolve, piece, &alikes->alikes[i], base))
			return false;
	/* Those that are not in the list differ in some reference: here all are right. */
	while (alikes->more_alikes &&
	       (reference = match_next_reference(resolve->archive, piece, &index)))
		if (reference->key & ARCHIVE_KEY_SECTION ||
		    judge_reference(resolve, piece, reference, base) != VERDICT_FITS)
			return false;
	return true;
}

struct collecting {
	struct resolve *resolve;
	const struct match_piece *piece;
	bool must_fit;
	struct hits *hits;
};

static int collect(uint64_t base, void *context)
{
	struct collecting *collecting = context;
	struct hits *hits = collecting->hits;

	if (collecting->must_fit &&
	    judge(collecting->resolve, collecting->piece, base) != VERDICT_FITS)
		return 0;
	hits->too_many = hits->count == HITS_MAX;
	if (!hits->too_many)
		hits->bases[hits->count++] = base;
	return hits->too_many;
}

static void note_found(struct resolve *resolve, const struct match_piece *piece, uint64_t base)
{
	const struct archive *archive = resolve->archive;
	const struct archive_section *section = &archive->sections[piece->section];
	const struct archive_reference *reference;
	uint32_t index = 0;

	for (uint32_t i = 0; i < section->function_count; i++) {
		const struct archive_function *function =
			&archive->functions[section->first_function + i];

		if (function->offset >= piece->start &&
		    function->offset - piece->start < piece->size &&
		    function->size <= piece->size - (function->offset - piece->start))
			resolve->starts[section->first_function + i] = base + function->offset;
	}
	while ((reference = next_named(archive, piece, &index))) {
		uint64_t *implied = &resolve->implied[reference->key], target;

		if (match_target(archive, &resolve->text, piece->section, reference, base, &target))
			*implied = *implied && *implied != target ? UNCLEAR : target;
	}
}

/* Whether code that was found refers to one of the hits by a name of the piece. */
static bool choose_implied(struct resolve *resolve, const struct match_piece *piece,
			   const struct hits *hits, int depth, uint64_t *ret)
{
	const struct archive *archive = resolve->archive;
	const struct archive_section *section = &archive->sections[piece->section];
	uint64_t chosen = 0;

	for (uint32_t i = 0; i < section->function_count; i++) {
		const struct archive_function *function =
			&archive->functions[section->first_function + i];

		if (function->offset < piece->start ||
		    function->offset - piece->start >= piece->size)
			continue;
		if (!resolve->implied[function->name])
			find_callers(resolve, function->name, depth);
		for (size_t j = 0; j < hits->count; j++) {
			if (resolve->implied[function->name] != hits->bases[j] + function->offset)
				continue;
			if (chosen && chosen != hits->bases[j])
				return false;
			chosen = hits->bases[j];
		}
	}
	if (chosen)
		*ret = chosen;
	return chosen;
}

/* The hits that nothing contradicts. */
static void drop_contradicted(const struct resolve *resolve, const struct match_piece *piece,
			      struct hits *hits)
{
	size_t kept = 0;

	for (size_t i = 0; i < hits->count; i++)
		if (judge(resolve, piece, hits->bases[i]) != VERDICT_CONTRADICTS)
			hits->bases[kept++] = hits->bases[i];
	hits->count = kept;
}

/* Of hits that bytes alone do not decide. */
static enum resolve_state choose(struct resolve *resolve, const struct match_piece *piece,
				 bool weak, const struct look_alikes *alikes, struct hits *hits,
				 int depth, uint64_t *ret)
{
	const struct archive *archive = resolve->archive;
	uint64_t other;

	drop_contradicted(resolve, piece, hits);
	if (!hits->count)
		return RESOLVE_ABSENT;
	if (choose_implied(resolve, piece, hits, depth, ret))
		return RESOLVE_FOUND;
	for (size_t i = 0; i < hits->count; i++)
		if (!is_told_apart(resolve, piece, alikes, hits->bases[i]))
			return RESOLVE_AMBIGUOUS;
	if (look_alikes_order(archive, alikes, piece, hits->bases, hits->count, weak, ret))
		return RESOLVE_FOUND;
	if (hits->count > 1)
		return RESOLVE_AMBIGUOUS;
	/* A jump may also be the end of another function. */
	if (match_fixed_bytes(archive, piece) < ENTRY_FIXED_MIN &&
	    !match_is_entry(&resolve->text, hits->bases[0] + piece->start))
		return RESOLVE_AMBIGUOUS;
	*ret = hits->bases[0];
	if (alikes->twin_count == 1)
		return RESOLVE_FOUND;
	/* The linker took one of the twins: the only one for users, if no code denies it. */
	for (size_t i = 0; i < alikes->twin_count; i++) {
		const struct match_piece *twin = &alikes->twins[i];
		bool self = twin->section == piece->section && twin->start == piece->start;

		if (look_alikes_is_public(archive, twin) != self ||
		    (!self && choose_implied(resolve, twin, hits, depth, &other)))
			return RESOLVE_AMBIGUOUS;
	}
	return RESOLVE_FOUND;
}

static enum resolve_state find_piece(struct resolve *resolve, const struct match_piece *piece,
				     uint32_t fixed_min, int depth)
{
	const struct archive *archive = resolve->archive;
	bool weak = match_fixed_bytes(archive, piece) < fixed_min, unique;
	struct hits hits = {};
	struct collecting collecting = {resolve, piece, weak, &hits};
	enum resolve_state state = RESOLVE_FOUND;
	struct look_alikes alikes;
	uint64_t base;

	look_alikes_find(archive, piece, &alikes);
	unique = !weak && alikes.twin_count == 1 && !alikes.alike_count;
	if (!unique)
		find_callees(resolve, piece, depth);
	match_search(archive, &resolve->text, piece, collect, &collecting);
	if (!hits.count)
		return RESOLVE_ABSENT;
	if (hits.too_many || alikes.more_twins)
		return RESOLVE_AMBIGUOUS;
	base = hits.bases[0];
	if (unique && hits.count > 1)
		find_callees(resolve, piece, depth);
	if (!unique || hits.count > 1)
		state = choose(resolve, piece, weak, &alikes, &hits, depth, &base);
	if (state == RESOLVE_FOUND)
		note_found(resolve, piece, base);
	return state;
}

static enum resolve_state find_section(struct resolve *resolve, uint32_t section, int depth)
{
	const struct match_piece piece = match_section(resolve->archive, section);

	if (resolve->states[section] != RESOLVE_UNKNOWN || depth > DEPTH_MAX)
		return resolve->states[section];
	resolve->states[section] = RESOLVE_BUSY;
	resolve->states[section] = find_piece(resolve, &piece, SECTION_FIXED_MIN, depth);
	return resolve->states[section];
}

enum resolve_state resolve_function(struct resolve *resolve, uint32_t function)
{
	const struct match_piece piece = match_function(resolve->archive, function);
	enum resolve_state state;

	if (resolve->starts[function])
		return RESOLVE_FOUND;
	state = find_section(resolve, piece.section, 0);
	if (state == RESOLVE_ABSENT && piece.size < resolve->archive->sections[piece.section].size)
		state = find_piece(resolve, &piece, FUNCTION_FIXED_MIN, 0);
	return resolve->starts[function] ? RESOLVE_FOUND : state;
}

void resolve_again(struct resolve *resolve)
{
	for (uint32_t i = 0; i < resolve->archive->section_count; i++)
		if (resolve->states[i] != RESOLVE_FOUND)
			resolve->states[i] = RESOLVE_UNKNOWN;
}
