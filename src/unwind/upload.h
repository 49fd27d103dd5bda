/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Puts the rows of images into the kernel's maps, so that a walker never sees half a table. */
#ifndef HEAPTAP_UNWIND_UPLOAD_H
#define HEAPTAP_UNWIND_UPLOAD_H

#include "unwind/rows.h"
#include "util/cleanup.h"

/* Descriptors of the maps of the same names; not owned. */
struct upload_maps {
	int images;
	int tables;
	int rules;
};

struct upload;

int upload_new(const struct upload_maps *maps, struct upload **ret);
void upload_free(struct upload *upload);
DEFINE_CLEANUP(upload, struct upload *, upload_free)

/*
 * Makes a table of rows, not yet reachable. Returns its descriptor, which the caller owns, or a
 * negative errno: -ENOSPC if there are more different rules than the rule table holds.
 */
int upload_table(struct upload *upload, const struct unwind_rows *rows);

/*
 * Publishes a table for an image; table is -1 for an image without rows. Replaces an older table.
 * flags: UNWIND_ALL_ROWS or 0.
 */
int upload_publish(struct upload *upload, uint32_t image, int table, uint32_t flags);

/* The image's table goes away; its frames are again "not built yet". */
void upload_withdraw(struct upload *upload, uint32_t image);

#endif
