/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the functions of an image are that its own symbol tables do not name: by its separate debug
 * file, its MiniDebugInfo, debuginfod, and signatures of the libraries it may be linked with.
 */
#ifndef HEAPTAP_PROBE_LOCATE_H
#define HEAPTAP_PROBE_LOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

struct locator;

struct locate_options {
	const char *const *signature_files; /* static libraries; copied */
	size_t signature_file_count;
	const char *const *debug_dirs; /* as debuginfo_new() takes them */
	size_t debug_dir_count;
	int root_fd;   /* of the target, as root_open() gives it, or -1; kept, not owned */
	bool download; /* debuginfod may be asked, if DEBUGINFOD_URLS is set */
};

struct located_function {
	const char *name; /* as in the file, such as "_ZdlPvm"; owned by the locator */
	uint64_t start;	  /* virtual address */
	uint64_t size;	  /* 0 if it is not known */
	bool ifunc;	  /* start is the resolver */
};

/* Opens nothing yet. Errors: -ENOMEM. */
int locator_new(const struct locate_options *options, struct locator **ret);
void locator_free(struct locator *locator);
DEFINE_CLEANUP(locator, struct locator *, locator_free)

/*
 * Reads the signature files, once; locate_more() does so if it was not done before. Errors: what
 * signatures_load() says of the first file that cannot be used; locator_error() puts it in words.
 */
int locator_load(struct locator *locator, bool (*wanted)(const char *name, void *arg), void *arg);

/* "'FILE' is ...: what to do", of the signature file that could not be loaded, or NULL. */
const char *locator_error(const struct locator *locator);

/*
 * Looks for functions in what is not the image itself, as described above, and stops at the first
 * source that has some. An image without any is no error: *ret_count is 0. The caller frees *ret.
 * wanted must be the one of locator_load(). Errors: -ENOMEM, or those of locator_load().
 */
int locate_more(struct locator *locator, struct image *image,
		bool (*wanted)(const char *name, void *arg), void *arg,
		struct located_function **ret, size_t *ret_count);

/*
 * The separate debug file of a stripped image; no server is asked. Errors: -ENOENT if it is not
 * stripped or has none, -ENOMEM.
 */
int locate_debug_file(struct locator *locator, struct image *image, struct image **ret);

/*
 * What locate_more() has searched in vain, and what to do, for the end of a message: "/opt/app is
 * statically linked and stripped; searched ...". Of several images the one is described that most
 * likely has the allocator. "" before the first.
 */
void locator_describe(const struct locator *locator, char *text, size_t size);

/* Whether an image is a program that no dynamic linker loads. */
bool locate_is_static(const struct image *image);

#endif
