/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "points_log.h"

#include "util/log.h"

void points_log(const struct image *image, const struct module_points *points)
{
	const char *path = image_path(image);
	size_t delegating = 0;

	for (size_t i = 0; i < points->count; i++) {
		const struct probe_point *point = &points->entries[i];
		unsigned long long offset = point->spec.offset - point->entry_offset;

		log_verbose("Probe point: %s %s+%llu%s%s", path, point->name, offset,
			    !point->why_entry ? ""
			    : offset	      ? ": single-stepped, as "
					      : ": the entry, as ",
			    point->why_entry ? point->why_entry : "");
	}
	for (size_t i = 0; i < points->left_out_count; i++) {
		const struct left_out *left_out = &points->left_out[i];

		delegating += left_out->delegates;
		if (!left_out->delegates)
			log_verbose("Not probed: %s %s: %s%s%s", path, left_out->name,
				    left_out->reason, left_out->other ? ", " : "",
				    left_out->other ? left_out->other : "");
	}
	if (delegating)
		log_verbose("Not probed: %s: %zu functions that only call others", path,
			    delegating);
}
