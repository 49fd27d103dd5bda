/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The frames of a profile that is being made, each with its place in it. */
#ifndef HEAPTAP_PROFILE_FRAME_TABLE_H
#define HEAPTAP_PROFILE_FRAME_TABLE_H

#include <stdint.h>

#include <uthash.h>

#include "util/arena.h"

struct known_frame {
	struct {
		uint64_t frame;
		uint64_t serial; /* 0 unless the frame is a raw address */
	} key;
	uint32_t location; /* 0: not given yet */
	UT_hash_handle hh;
};

/* All zero is an empty one. */
struct frame_table {
	struct known_frame *frames; /* linked by hh.next */
	struct arena arena;
};

void frame_table_fini(struct frame_table *table);

/* Finds a frame of a process, or adds it. NULL if memory ran out. */
struct known_frame *frame_table_get(struct frame_table *table, uint64_t frame, uint32_t serial);

/* By image and offset. */
void frame_table_sort(struct frame_table *table);

#endif
