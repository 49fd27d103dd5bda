/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads of whole BPF maps. Part of kernel.c, which knows what they mean. */
#ifndef HEAPTAP_KERNEL_MAPS_H
#define HEAPTAP_KERNEL_MAPS_H

#include <stdbool.h>
#include <stddef.h>

#include "heaptap/process.h"
#include "heaptap/site.h"
#include "profile/threads.h"

/* All sites of an epoch; the caller frees both. Errors: -ENOMEM, those of the map. */
int kernel_maps_sites(int map, __u32 epoch, struct site_key **ret_keys,
		      struct site_counters **ret_values, size_t *ret_count);

/* Calls seen() for all that are there, as they were when the call began. */
int kernel_maps_processes(int map,
			  int (*seen)(void *arg, __u32 serial, const struct process_info *info),
			  void *arg);

/* Adds all names of threads that are there. Errors: -ENOMEM, those of the map. */
int kernel_maps_threads(int map, struct threads *threads);

/*
 * Deletes the live records of serials for which gone() says so, and takes them out of the filter.
 * *ret_bytes: their weights.
 */
int kernel_maps_purge(int map, __u32 *filter, bool (*gone)(void *arg, __u32 serial), void *arg,
		      __u64 *ret_bytes);

#endif
