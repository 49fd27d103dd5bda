/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/signatures.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "elf/archive.h"
#include "probe/resolve.h"
#include "util/regular.h"

/* What is found in one round may decide what another left open. */
#define ROUNDS_MAX 4

struct signatures {
	struct archive *archive;
	bool *wanted; /* by name */
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
		return -ENODATA;
	*ret = take_ptr(signatures);
	return 0;
}

void signature_hits_fini(struct signature_hits *hits)
{
	free(hits->entries);
	*hits = (struct signature_hits){};
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
static bool gives_way(const struct resolve *resolve, uint32_t index, bool *unclear)
{
	const struct archive *archive = resolve->archive;
	const struct archive_function *function = &archive->functions[index];
	uint32_t other = archive->names[function->name].first_function;

	bool gives_way = false;

	*unclear = false;
	for (; other != ARCHIVE_NONE; other = archive->functions[other].next_by_name) {
		if (!resolve->starts[other] || resolve->starts[other] == resolve->starts[index] ||
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

static int add_hits(const struct signatures *signatures, struct resolve *resolve,
		    struct signature_hits *hits)
{
	const struct archive *archive = resolve->archive;

	for (uint32_t i = 0; i < archive->function_count; i++) {
		const struct archive_function *function = &archive->functions[i];
		const char *name = archive->names[function->name].text;
		struct signature_hit *entries;
		bool unclear;

		if (!signatures->wanted[function->name] || !resolve->starts[i] ||
		    have_hit(hits, name))
			continue;
		if (gives_way(resolve, i, &unclear)) {
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
			(struct signature_hit){name, resolve->starts[i], function->size};
	}
	if (hits->count)
		qsort(hits->entries, hits->count, sizeof(*hits->entries), compare_hits);
	return 0;
}

/* Returns whether something was found and something is ambiguous: then another round may help. */
static bool find_all(const struct signatures *signatures, struct resolve *resolve,
		     struct signature_hits *hits)
{
	const struct archive *archive = resolve->archive;
	bool any = false;

	hits->ambiguous = 0;
	for (uint32_t i = 0; i < archive->function_count; i++) {
		uint32_t name = archive->functions[i].name;

		if (!signatures->wanted[name] || resolve->starts[i])
			continue;
		switch (resolve_function(resolve, i)) {
		case RESOLVE_FOUND:
			any = true;
			break;
		case RESOLVE_AMBIGUOUS:
			hits->ambiguous++;
			hits->ambiguous_name = archive->names[name].text;
			break;
		default:
			break;
		}
	}
	return any && hits->ambiguous;
}

int signatures_find(const struct signatures *signatures, struct image *image,
		    struct signature_hits *ret)
{
	struct resolve resolve __attribute__((cleanup(resolve_fini))) = {};
	struct signature_hits hits __attribute__((cleanup(signature_hits_fini))) = {};
	const struct archive *archive = signatures->archive;
	int err = resolve_init(&resolve, archive, image);

	if (err)
		return err;
	for (int round = 0; round < ROUNDS_MAX && find_all(signatures, &resolve, &hits); round++)
		resolve_again(&resolve);
	err = add_hits(signatures, &resolve, &hits);
	if (err)
		return err;
	*ret = hits;
	hits.entries = NULL;
	return 0;
}
