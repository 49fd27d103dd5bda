/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What -v says of probe points: those that were chosen, and what was left out. */
#ifndef HEAPTAP_POINTS_LOG_H
#define HEAPTAP_POINTS_LOG_H

#include "probe/points.h"

/* Of one image. */
void points_log(const struct image *image, const struct module_points *points);

#endif
