/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tables of a session: builds each image's rows once per build-id, at once or in the
 * background, and publishes them.
 */
#ifndef HEAPTAP_UNWIND_TABLES_H
#define HEAPTAP_UNWIND_TABLES_H

#include <stdbool.h>

#include "elf/image.h"
#include "unwind/upload.h"

struct tables;

struct tables_stats {
	size_t images;	/* with a table */
	size_t rowless; /* without rows */
	size_t shared;	/* that took an equal image's table */
	size_t rows;
	size_t dropped_fdes;
	size_t evicted;
	size_t failed; /* could not be built or published */
	uint64_t build_ns;
};

int tables_new(const struct upload_maps *maps, struct tables **ret);
/* Waits for the build in progress and drops the others. */
void tables_free(struct tables *tables);
DEFINE_CLEANUP(tables, struct tables *, tables_free)

/*
 * Builds and publishes an image's table before it returns; all: with rows between call sites too.
 * Errors: see unwind_rows_build().
 */
int tables_build(struct tables *tables, uint32_t id, struct image *image, bool all);

/*
 * Asks for an image's table in the background. The file is opened anew from the image's
 * descriptor, so the image may go away. all: rows between call sites too, replacing the table.
 * Asking again for the same does nothing, unless it has failed. Errors: -ENOMEM, -EMFILE.
 */
int tables_request(struct tables *tables, uint32_t id, struct image *image, bool all);

/* No target maps the image any more: its table goes away, and can be requested again. */
void tables_evict(struct tables *tables, uint32_t id);

void tables_read_stats(struct tables *tables, struct tables_stats *ret);

#endif
