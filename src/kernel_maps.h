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

/*
 * Calls seen() for every entry, in some order; those that are there all the while are seen exactly
 * once. It may delete the entry. Errors: those of the map and of seen(), -ENOMEM.
 */
int kernel_maps_each(int map, size_t key_size, size_t value_size,
		     int (*seen)(void *arg, const void *key, const void *value), void *arg);

/* The same for the processes. */
int kernel_maps_processes(int map,
			  int (*seen)(void *arg, __u32 serial, const struct process_info *info),
			  void *arg);

/* Adds all names of threads that are there. Errors: -ENOMEM, those of the map. */
int kernel_maps_threads(int map, struct threads *threads);

/* One record less in the live filter. */
void kernel_maps_forget(__u32 *filter, __u64 address);

/*
 * Deletes the live records of serials for which gone() says so, and takes them out of the filter.
 * *ret_bytes: their weights, also of those that were deleted before an error.
 */
int kernel_maps_purge(int map, __u32 *filter, bool (*gone)(void *arg, __u32 serial), void *arg,
		      __u64 *ret_bytes);

/*
 * Sums the values of a per-CPU array's element over all CPUs; a value is count numbers of 64 bits.
 * Errors: -ENOMEM, those of the map.
 */
int kernel_maps_sum(int map, __u32 key, int cpu_count, __u64 *sums, size_t count);

/*
 * Programs run under rcu_read_lock: after a grace period none that was running still runs. Those
 * that may sleep are others.
 */
void kernel_wait_for_programs(void);

#endif
