/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A batch lookup goes bucket by bucket, so entries that are there all the while are seen exactly
 * once, whatever else happens in the map. Those of a closed epoch and of a process that has left
 * are.
 */
#include "kernel_maps.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"

#define BATCH 4096

/* Reads on from *batch, NULL at first. Returns 1 if there is more, 0, or a negative errno. */
static int read_batch(int map, void *from, __u32 *batch, void *keys, void *values, __u32 *ret_count)
{
	*ret_count = BATCH;
	if (!bpf_map_lookup_batch(map, from, batch, keys, values, ret_count, NULL))
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

int kernel_maps_each(int map, size_t key_size, size_t value_size,
		     int (*seen)(void *arg, const void *key, const void *value), void *arg)
{
	_cleanup_free_ char *keys = calloc(BATCH, key_size);
	_cleanup_free_ char *values = calloc(BATCH, value_size);
	__u32 batch = 0, n;
	int more = 1, err;

	if (!keys || !values)
		return -ENOMEM;
	for (void *from = NULL; more > 0; from = &batch) {
		more = read_batch(map, from, &batch, keys, values, &n);
		if (more < 0)
			return more;
		for (size_t i = 0; i < n; i++) {
			err = seen(arg, keys + i * key_size, values + i * value_size);
			if (err)
				return err;
		}
	}
	return 0;
}

struct sites {
	__u16 epoch;
	struct site_key *keys;
	struct site_counters *values;
	size_t count;
	size_t capacity;
};

static void cleanup_sites(struct sites *sites)
{
	free(sites->keys);
	free(sites->values);
}

static int reserve(struct sites *sites)
{
	size_t capacity = sites->capacity ? 2 * sites->capacity : BATCH;
	struct site_key *keys;
	struct site_counters *values;

	if (sites->count < sites->capacity)
		return 0;
	keys = reallocarray(sites->keys, capacity, sizeof(*keys));
	if (keys)
		sites->keys = keys;
	values = reallocarray(sites->values, capacity, sizeof(*values));
	if (values)
		sites->values = values;
	if (!keys || !values)
		return -ENOMEM;
	sites->capacity = capacity;
	return 0;
}

/* Those of other epochs are passed over. */
static int keep_site(void *arg, const void *key, const void *value)
{
	const struct site_key *site = key;
	struct sites *sites = arg;
	int err;

	if (site->epoch != sites->epoch)
		return 0;
	err = reserve(sites);
	if (err)
		return err;
	sites->keys[sites->count] = *site;
	memcpy(&sites->values[sites->count++], value, sizeof(*sites->values));
	return 0;
}

int kernel_maps_sites(int map, __u32 epoch, struct site_key **ret_keys,
		      struct site_counters **ret_values, size_t *ret_count)
{
	struct sites sites CLEANUP(sites) = {.epoch = (__u16)epoch};
	int err = kernel_maps_each(map, sizeof(struct site_key), sizeof(struct site_counters),
				   keep_site, &sites);

	if (err)
		return err;
	*ret_keys = take_ptr(sites.keys);
	*ret_values = take_ptr(sites.values);
	*ret_count = sites.count;
	return 0;
}

struct process_reader {
	int (*seen)(void *arg, __u32 serial, const struct process_info *info);
	void *arg;
};

static int see_process(void *arg, const void *key, const void *value)
{
	const struct process_reader *reader = arg;

	return reader->seen(reader->arg, *(const __u32 *)key, value);
}

int kernel_maps_processes(int map,
			  int (*seen)(void *arg, __u32 serial, const struct process_info *info),
			  void *arg)
{
	struct process_reader reader = {seen, arg};

	return kernel_maps_each(map, sizeof(__u32), sizeof(struct process_info), see_process,
				&reader);
}

static int add_thread(void *arg, const void *key, const void *value)
{
	threads_add(arg, *(const __u32 *)value, key);
	return 0;
}

int kernel_maps_threads(int map, struct threads *threads)
{
	return kernel_maps_each(map, sizeof(struct thread_name), sizeof(__u32), add_thread,
				threads);
}

/* As live_filter_slot() and live_forget() in bpf/live.bpf.h. */
void kernel_maps_forget(__u32 *filter, __u64 address)
{
	__u64 hash = (address >> 4) * 0x9e3779b97f4a7c15ull;

	__atomic_fetch_sub(&filter[hash >> (64 - LIVE_FILTER_BITS)], 1, __ATOMIC_SEQ_CST);
}

struct purge {
	int map;
	__u32 *filter;
	bool (*gone)(void *arg, __u32 serial);
	void *arg;
	__u64 bytes;
};

static int purge_record(void *arg, const void *key, const void *value)
{
	const struct live_key *live = key;
	const struct live_record *record = value;
	struct purge *purge = arg;

	if (!purge->gone(purge->arg, live->serial) || bpf_map_delete_elem(purge->map, live))
		return 0;
	kernel_maps_forget(purge->filter, live->address);
	purge->bytes += record->weight.bytes;
	return 0;
}

int kernel_maps_purge(int map, __u32 *filter, bool (*gone)(void *arg, __u32 serial), void *arg,
		      __u64 *ret_bytes)
{
	struct purge purge = {map, filter, gone, arg, 0};
	int err = kernel_maps_each(map, sizeof(struct live_key), sizeof(struct live_record),
				   purge_record, &purge);

	*ret_bytes = purge.bytes;
	return err;
}

int kernel_maps_sum(int map, __u32 key, int cpu_count, __u64 *sums, size_t count)
{
	_cleanup_free_ __u64 *values = calloc(cpu_count * count, sizeof(*values));

	if (!values)
		return -ENOMEM;
	memset(sums, 0, count * sizeof(*sums));
	if (bpf_map_lookup_elem(map, &key, values))
		return -errno;
	for (size_t i = 0; i < cpu_count * count; i++)
		sums[i % count] += values[i];
	return 0;
}

/*
 * An update of a map of maps ends with a grace period, so that no program uses any more what it has
 * replaced. That holds for every kernel and machine.
 */
static int wait_by_update(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts);
	_cleanup_close_ int inner = -1;
	_cleanup_close_ int outer = -1;
	const __u32 key = 0;

	inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "heaptap_inner", sizeof(key), sizeof(key), 1,
			       NULL);
	if (inner < 0)
		return -errno;
	opts.inner_map_fd = inner;
	outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "heaptap_wait", sizeof(key),
			       sizeof(inner), 1, &opts);
	if (outer < 0)
		return -errno;
	return bpf_map_update_elem(outer, &key, &inner, BPF_ANY) ? -errno : 0;
}

void kernel_wait_for_programs(void)
{
	struct timespec pause = {.tv_nsec = 20000000};

	/*
	 * Without memory or descriptors for it: with one CPU online membarrier() does not wait,
	 * though a program may be preempted there, and on nohz_full machines it is refused. A
	 * program runs for microseconds.
	 */
	if (wait_by_update() && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
		nanosleep(&pause, NULL);
}
