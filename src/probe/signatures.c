/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Linkers move sections as a whole, so a section is what is searched for, all of its bytes; its
 * functions follow. A section that is there once is found, unless
 *  - the library has another of the same bytes (musl's calloc and __libc_calloc), or it is so short
 *    that anything may look like it (a jump): then what it refers to must be where that was found;
 *  - the library has another of the same code (musl's malloc and __libc_malloc, both a jump to one
 *    function): then code that refers to it tells which it is, or the order of the sections.
 * Where the section is not there as a whole, its functions are searched for one by one.
 */
#include "probe/signatures.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "elf/archive.h"
#include "probe/match.h"
#include "util/regular.h"

/* With fewer bytes that linkers leave alone, a match needs a reference that fits. */
#define FIXED_MIN_BYTES 24
/* The same for a function whose section is not there as a whole. */
#define FUNCTION_FIXED_MIN_BYTES 48
/* malloc -> wrapper -> function -> what it needs */
#define DEPTH_MAX 4
#define HITS_MAX  32
#define TWINS_MAX HITS_MAX
/* Sections asked whether they are in the image and refer to a function. */
#define CALLERS_MAX 256
#define ROUNDS_MAX  4

struct signatures {
	struct archive *archive;
	bool *wanted; /* by name */
};

enum state {
	STATE_UNKNOWN,
	STATE_BUSY,
	STATE_FOUND,
	STATE_ABSENT,
	STATE_AMBIGUOUS,
};

/* One search in one image. */
struct search {
	const struct archive *archive;
	struct match_text text;
	uint8_t *states;   /* enum state, by section */
	uint64_t *starts;  /* by function; 0: not found */
	uint64_t *implied; /* by name: where found code refers to; 0: nowhere; CONFLICT */
};

#define CONFLICT UINT64_MAX

struct hits {
	uint64_t bases[HITS_MAX];
	size_t count;
	bool more;
};

void signatures_free(struct signatures *signatures)
{
	if (!signatures)
		return;
	archive_free(signatures->archive);
	free(signatures->wanted);
	free(signatures);
}

int signatures_load(const char *path, bool (*wanted)(const char *name, void *arg), void *arg,
		    struct signatures **ret)
{
	struct signatures *signatures CLEANUP(signatures) = calloc(1, sizeof(*signatures));
	_cleanup_close_ int fd = regular_open(path);
	bool any = false;
	int err;

	if (fd < 0)
		return fd == -EINVAL ? -ENOEXEC : fd;
	if (!signatures)
		return -ENOMEM;
	err = archive_read(fd, &signatures->archive);
	if (err)
		return err;
	signatures->wanted = calloc(signatures->archive->name_count + 1, sizeof(bool));
	if (!signatures->wanted)
		return -ENOMEM;
	for (uint32_t i = 0; i < signatures->archive->name_count; i++) {
		const struct archive_name *name = &signatures->archive->names[i];

		signatures->wanted[i] =
			name->first_function != ARCHIVE_NONE && wanted(name->text, arg);
		any |= signatures->wanted[i];
	}
	if (!any)
		return -ENOENT;
	*ret = take_ptr(signatures);
	return 0;
}

void signature_hits_fini(struct signature_hits *hits)
{
	free(hits->entries);
	*hits = (struct signature_hits){};
}

static void search_fini(struct search *search)
{
	match_text_fini(&search->text);
	free(search->states);
	free(search->starts);
	free(search->implied);
}

static int search_init(struct search *search, const struct archive *archive, struct image *image)
{
	search->archive = archive;
	search->states = calloc(archive->section_count + 1, sizeof(*search->states));
	search->starts = calloc(archive->function_count + 1, sizeof(*search->starts));
	search->implied = calloc(archive->name_count + 1, sizeof(*search->implied));
	if (!search->states || !search->starts || !search->implied)
		return -ENOMEM;
	return match_text_read(image, &search->text);
}

static enum state resolve_section(struct search *search, uint32_t section, int depth);

/* Calls of the piece's references that are by name. */
#define for_each_named(archive, piece, reference)                                                  \
	for (const struct archive_reference *                                                      \
		     reference = (archive)->references +                                           \
				 (archive)->sections[(piece)->section].first_reference,            \
		    *end_ = reference + (archive)->sections[(piece)->section].reference_count;     \
	     reference < end_; reference++)                                                        \
		if (!(reference->key & ARCHIVE_KEY_SECTION) &&                                     \
		    reference->offset >= (piece)->start &&                                         \
		    reference->offset - (piece)->start < (piece)->size)

static void resolve_callees(struct search *search, const struct match_piece *piece, int depth)
{
	const struct archive *archive = search->archive;

	for_each_named(archive, piece, reference)
	{
		uint32_t function = archive->names[reference->key].first_function;

		for (; function != ARCHIVE_NONE;
		     function = archive->functions[function].next_by_name)
			resolve_section(search, archive->functions[function].section, depth + 1);
	}
}

/*
 * Sections that refer to a function by name tell where it is, if they are found. Only for those
 * asked first: each of them is one more search.
 */
static void resolve_callers(struct search *search, uint32_t name, int depth)
{
	const struct archive *archive = search->archive;
	size_t asked = 0;

	for (uint32_t i = 0; i < archive->section_count && asked < CALLERS_MAX && !depth; i++) {
		const struct match_piece piece = match_section(archive, i);
		bool refers = false;

		if (search->states[i] != STATE_UNKNOWN ||
		    match_fixed_bytes(archive, &piece) < FIXED_MIN_BYTES)
			continue;
		for_each_named(archive, &piece, reference) refers |= reference->key == name;
		if (refers) {
			resolve_section(search, i, depth + 1);
			asked++;
		}
	}
}

enum verdict {
	VERDICT_UNKNOWN,
	VERDICT_FITS,
	VERDICT_CONTRADICTS,
};

/* Whether a place's references lead to what was found. One contradiction is enough. */
static enum verdict judge(const struct search *search, const struct match_piece *piece,
			  uint64_t base)
{
	const struct archive *archive = search->archive;
	enum verdict verdict = VERDICT_UNKNOWN;

	for_each_named(archive, piece, reference)
	{
		uint32_t function = archive->names[reference->key].first_function;
		bool found = false, fits = false;
		uint64_t target;

		if (!match_target(archive, &search->text, piece->section, reference, base, &target))
			continue;
		for (; function != ARCHIVE_NONE;
		     function = archive->functions[function].next_by_name) {
			found |= search->starts[function] != 0;
			fits |= search->starts[function] == target;
		}
		if (found && !fits)
			return VERDICT_CONTRADICTS;
		if (found)
			verdict = VERDICT_FITS;
	}
	return verdict;
}

struct collecting {
	const struct search *search;
	const struct match_piece *piece;
	bool must_fit;
	struct hits *hits;
};

static int collect(uint64_t base, void *context)
{
	struct collecting *collecting = context;
	struct hits *hits = collecting->hits;

	if (collecting->must_fit &&
	    judge(collecting->search, collecting->piece, base) != VERDICT_FITS)
		return 0;
	if (hits->count == HITS_MAX) {
		hits->more = true;
		return 1;
	}
	hits->bases[hits->count++] = base;
	return 0;
}

/* Other pieces of the library with the same bytes. */
struct look_alikes {
	struct match_piece twins[TWINS_MAX + 1]; /* with the piece itself, in their order */
	size_t twin_count;
	size_t alike_count;
	bool visible_twin; /* one that is for users of the library */
};

static bool is_visible(const struct archive *archive, const struct match_piece *piece)
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

static void add_if_alike(const struct archive *archive, const struct match_piece *piece,
			 const struct match_piece *other, struct look_alikes *ret)
{
	bool self = other->section == piece->section && other->start == piece->start;

	switch (self ? MATCH_TWINS : match_compare(archive, piece, other)) {
	case MATCH_ALIKE:
		ret->alike_count++;
		break;
	case MATCH_TWINS:
		if (ret->twin_count <= TWINS_MAX)
			ret->twins[ret->twin_count++] = *other;
		ret->visible_twin |= !self && is_visible(archive, other);
		break;
	case MATCH_DIFFERENT:
		break;
	}
}

static void find_look_alikes(const struct archive *archive, const struct match_piece *piece,
			     struct look_alikes *ret)
{
	uint32_t last_start = ARCHIVE_NONE, last_section = ARCHIVE_NONE;

	*ret = (struct look_alikes){};
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
		if (other.section != last_section || other.start != last_start)
			add_if_alike(archive, piece, &other, ret);
		last_section = other.section;
		last_start = other.start;
	}
}

static void found(struct search *search, const struct match_piece *piece, uint64_t base)
{
	const struct archive *archive = search->archive;
	const struct archive_section *section = &archive->sections[piece->section];

	for (uint32_t i = 0; i < section->function_count; i++) {
		uint32_t index = section->first_function + i;
		const struct archive_function *function = &archive->functions[index];

		if (function->offset >= piece->start &&
		    function->offset - piece->start + function->size <= piece->size)
			search->starts[index] = base + function->offset;
	}
	for_each_named(archive, piece, reference)
	{
		uint64_t *implied = &search->implied[reference->key], target;

		if (match_target(archive, &search->text, piece->section, reference, base, &target))
			*implied = *implied && *implied != target ? CONFLICT : target;
	}
}

/* Whether code that was found refers to one of the hits by a name of the piece. */
static bool choose_implied(struct search *search, const struct match_piece *piece,
			   const struct hits *hits, int depth, uint64_t *ret)
{
	const struct archive *archive = search->archive;
	const struct archive_section *section = &archive->sections[piece->section];
	uint64_t chosen = 0;

	for (uint32_t i = 0; i < section->function_count; i++) {
		const struct archive_function *function =
			&archive->functions[section->first_function + i];

		if (function->offset < piece->start ||
		    function->offset - piece->start >= piece->size)
			continue;
		if (!search->implied[function->name])
			resolve_callers(search, function->name, depth);
		for (size_t j = 0; j < hits->count; j++) {
			uint64_t start = hits->bases[j] + function->offset;

			if (search->implied[function->name] != start)
				continue;
			if (chosen && chosen != hits->bases[j])
				return false;
			chosen = hits->bases[j];
		}
	}
	*ret = chosen;
	return chosen;
}

/* As many places as twins, and as far from one another as in their object. */
static bool choose_by_order(const struct archive *archive, const struct match_piece *piece,
			    const struct look_alikes *alikes, const struct hits *hits,
			    uint64_t *ret)
{
	bool chosen = false;

	if (alikes->twin_count < 2 || hits->count != alikes->twin_count)
		return false;
	for (size_t i = 0; i < hits->count; i++) {
		const struct match_piece *twin = &alikes->twins[i];
		uint64_t vaddr = hits->bases[i] + twin->start;

		if (i + 1 < hits->count &&
		    match_neighbour(archive, twin, vaddr, &alikes->twins[i + 1]) !=
			    hits->bases[i + 1] + alikes->twins[i + 1].start)
			return false;
		if (twin->section == piece->section && twin->start == piece->start) {
			*ret = hits->bases[i];
			chosen = true;
		}
	}
	return chosen;
}

static enum state choose(struct search *search, const struct match_piece *piece, bool weak,
			 const struct look_alikes *alikes, struct hits *hits, int depth,
			 uint64_t *ret)
{
	uint64_t implied;
	size_t kept = 0;

	if (hits->count > 1 && !weak)
		resolve_callees(search, piece, depth);
	for (size_t i = 0; i < hits->count; i++) {
		enum verdict verdict = judge(search, piece, hits->bases[i]);

		if (verdict == VERDICT_CONTRADICTS)
			continue;
		/* Of the same bytes only those are it that refer to the same. */
		if (alikes->alike_count && verdict != VERDICT_FITS)
			return STATE_AMBIGUOUS;
		hits->bases[kept++] = hits->bases[i];
	}
	hits->count = kept;
	if (!kept)
		return STATE_ABSENT;
	*ret = hits->bases[0];
	if (kept == 1 && alikes->twin_count == 1)
		return STATE_FOUND;
	if (choose_implied(search, piece, hits, depth, ret) ||
	    choose_by_order(search->archive, piece, alikes, hits, ret))
		return STATE_FOUND;
	if (kept > 1 || alikes->visible_twin || !is_visible(search->archive, piece))
		return STATE_AMBIGUOUS;
	/* The linker took one of the twins: the one that users can name, if no code denies it. */
	for (size_t i = 0; i < alikes->twin_count; i++)
		if (choose_implied(search, &alikes->twins[i], hits, depth, &implied))
			return STATE_AMBIGUOUS;
	return STATE_FOUND;
}

static enum state resolve(struct search *search, const struct match_piece *piece,
			  uint32_t fixed_min, int depth)
{
	const struct archive *archive = search->archive;
	bool weak = match_fixed_bytes(archive, piece) < fixed_min;
	struct look_alikes alikes;
	struct hits hits = {};
	struct collecting collecting = {search, piece, weak, &hits};
	uint64_t base = 0;
	enum state state;

	find_look_alikes(archive, piece, &alikes);
	if (weak || alikes.alike_count || alikes.twin_count > 1)
		resolve_callees(search, piece, depth);
	match_search(archive, &search->text, piece, collect, &collecting);
	if (!hits.count)
		return STATE_ABSENT;
	if (hits.more)
		return STATE_AMBIGUOUS;
	state = STATE_FOUND;
	base = hits.bases[0];
	if (weak || hits.count > 1 || alikes.alike_count || alikes.twin_count > 1)
		state = choose(search, piece, weak, &alikes, &hits, depth, &base);
	if (state == STATE_FOUND)
		found(search, piece, base);
	return state;
}

static enum state resolve_section(struct search *search, uint32_t section, int depth)
{
	const struct match_piece piece = match_section(search->archive, section);

	if (search->states[section] != STATE_UNKNOWN || depth > DEPTH_MAX)
		return search->states[section];
	search->states[section] = STATE_BUSY;
	search->states[section] = resolve(search, &piece, FIXED_MIN_BYTES, depth);
	return search->states[section];
}

static enum state resolve_function(struct search *search, uint32_t index)
{
	const struct match_piece piece = match_function(search->archive, index);
	enum state state = resolve_section(search, piece.section, 0);

	if (state == STATE_ABSENT && !search->starts[index] &&
	    piece.size < search->archive->sections[piece.section].size)
		state = resolve(search, &piece, FUNCTION_FIXED_MIN_BYTES, 0);
	return search->starts[index] ? STATE_FOUND : state;
}

static int compare_hits(const void *a, const void *b)
{
	const struct signature_hit *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return strcmp(x->name, y->name);
}

/*
 * Whether another function of the same name was found elsewhere and may be the one that the linker
 * has taken; *unclear if it may not.
 */
static bool gives_way(const struct search *search, uint32_t index, bool *unclear)
{
	const struct archive *archive = search->archive;
	const struct archive_function *function = &archive->functions[index];
	uint32_t other = archive->names[function->name].first_function;

	bool gives_way = false;

	*unclear = false;
	for (; other != ARCHIVE_NONE; other = archive->functions[other].next_by_name) {
		if (!search->starts[other] || search->starts[other] == search->starts[index] ||
		    (archive->functions[other].weak && !function->weak))
			continue;
		gives_way = true;
		*unclear |= archive->functions[other].weak == function->weak;
	}
	return gives_way;
}

static bool have_hit(const struct signature_hits *hits, const char *name)
{
	for (size_t i = 0; i < hits->count; i++)
		if (hits->entries[i].name == name)
			return true;
	return false;
}

static int add_hits(const struct signatures *signatures, struct search *search,
		    struct signature_hits *hits)
{
	const struct archive *archive = search->archive;

	for (uint32_t i = 0; i < archive->function_count; i++) {
		const struct archive_function *function = &archive->functions[i];
		const char *name = archive->names[function->name].text;
		struct signature_hit *entries;
		bool unclear;

		if (!signatures->wanted[function->name] || !search->starts[i] ||
		    have_hit(hits, name))
			continue;
		if (gives_way(search, i, &unclear)) {
			hits->ambiguous += unclear;
			if (unclear)
				hits->ambiguous_name = name;
			continue;
		}
		entries = reallocarray(hits->entries, hits->count + 1, sizeof(*entries));
		if (!entries)
			return -ENOMEM;
		hits->entries = entries;
		entries[hits->count++] =
			(struct signature_hit){name, search->starts[i], function->size};
	}
	if (hits->count)
		qsort(hits->entries, hits->count, sizeof(*hits->entries), compare_hits);
	return 0;
}

/* Returns whether something was found and something is ambiguous: then another round may help. */
static bool find_all(const struct signatures *signatures, struct search *search,
		     struct signature_hits *hits)
{
	const struct archive *archive = search->archive;
	bool any = false;

	hits->ambiguous = 0;
	for (uint32_t i = 0; i < archive->function_count; i++) {
		uint32_t name = archive->functions[i].name;

		if (!signatures->wanted[name] || search->starts[i])
			continue;
		switch (resolve_function(search, i)) {
		case STATE_FOUND:
			any = true;
			break;
		case STATE_AMBIGUOUS:
			hits->ambiguous++;
			hits->ambiguous_name = archive->names[name].text;
			break;
		default:
			break;
		}
	}
	return any && hits->ambiguous;
}

static void forget_undecided(struct search *search)
{
	for (uint32_t i = 0; i < search->archive->section_count; i++)
		if (search->states[i] != STATE_FOUND)
			search->states[i] = STATE_UNKNOWN;
}

int signatures_find(const struct signatures *signatures, struct image *image,
		    struct signature_hits *ret)
{
	struct search search __attribute__((cleanup(search_fini))) = {};
	struct signature_hits hits __attribute__((cleanup(signature_hits_fini))) = {};
	const struct archive *archive = signatures->archive;
	int err = search_init(&search, archive, image);

	if (err)
		return err;
	/* What was found late may decide what was met before. */
	for (int round = 0; round < ROUNDS_MAX && find_all(signatures, &search, &hits); round++)
		forget_undecided(&search);
	err = add_hits(signatures, &search, &hits);
	if (err)
		return err;
	*ret = hits;
	hits.entries = NULL;
	return 0;
}
