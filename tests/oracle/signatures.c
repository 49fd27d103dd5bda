/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * signatures [-a] IMAGE LIBRARY...: the allocation functions of the libraries that are found in an
 * image, as "address name" lines that can be compared with those of nm; with -a all functions.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "probe/signatures.h"

static bool is_wanted(const char *name, void *arg)
{
	static const char *const names[] = {
		"malloc",	  "free",   "calloc",  "realloc", "memalign", "aligned_alloc",
		"posix_memalign", "valloc", "pvalloc", "cfree",	  "mallocx",
	};

	if (*(const bool *)arg)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	/* operator new and delete */
	return !strncmp(name, "_Zn", 3) || !strncmp(name, "_Zd", 3) || !strncmp(name, "tc_", 3) ||
	       !strncmp(name, "mi_", 3);
}

static int find(struct image *image, const char *library, bool all)
{
	struct signatures *signatures CLEANUP(signatures) = NULL;
	struct signature_hits hits = {};
	int err = signatures_load(library, is_wanted, &all, &signatures);

	if (!err)
		err = signatures_find(signatures, image, &hits);
	if (err) {
		fprintf(stderr, "%s: %s\n", library, strerror(-err));
		return err;
	}
	for (size_t i = 0; i < hits.count; i++)
		printf("%016llx %s\n", (unsigned long long)hits.entries[i].start,
		       hits.entries[i].name);
	if (hits.ambiguous)
		fprintf(stderr, "%s: %zu ambiguous, such as %s\n", library, hits.ambiguous,
			hits.ambiguous_name);
	signature_hits_fini(&hits);
	return 0;
}

int main(int argc, char **argv)
{
	bool all = argc > 1 && !strcmp(argv[1], "-a");
	struct image *image CLEANUP(image) = NULL;
	int err, fd;

	argv += all;
	argc -= all;
	fd = argc > 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) {
		fprintf(stderr, "usage: signatures [-a] IMAGE LIBRARY...\n");
		return 2;
	}
	err = image_open(fd, argv[1], &image);
	for (int i = 2; i < argc && !err; i++)
		err = find(image, argv[i], all);
	return err ? 1 : 0;
}
