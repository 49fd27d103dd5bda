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

/* A whole map, as it is read. */
struct dump {
	void *keys;
	void *values;
	size_t count;
	size_t capacity;
	size_t key_size;
	size_t value_size;
};

static void cleanup_dump(struct dump *dump)
{
	free(dump->keys);
	free(dump->values);
}

static int reserve(struct dump *dump)
{
	size_t capacity = dump->capacity * 2 + BATCH;
	void *keys, *values;

	if (dump->capacity - dump->count >= BATCH)
		return 0;
	keys = reallocarray(dump->keys, capacity, dump->key_size);
	if (keys)
		dump->keys = keys;
	values = reallocarray(dump->values, capacity, dump->value_size);
	if (values)
		dump->values = values;
	if (!keys || !values)
		return -ENOMEM;
	dump->capacity = capacity;
	return 0;
}

/* Reads on from *batch, NULL at first. Returns 1 if there is more, 0, or a negative errno. */
static int read_batch(int map, struct dump *dump, void *from, __u32 *batch, __u32 *ret_count)
{
	int err = reserve(dump);

	if (err)
		return err;
	*ret_count = BATCH;
	if (!bpf_map_lookup_batch(
		    map, from, batch, (char *)dump->keys + dump->count * dump->key_size,
		    (char *)dump->values + dump->count * dump->value_size, ret_count, NULL))
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

int kernel_maps_each(int map, size_t key_size, size_t value_size,
		     int (*seen)(void *arg, const void *key, const void *value), void *arg)
{
	struct dump dump CLEANUP(dump) = {.key_size = key_size, .value_size = value_size};
	__u32 batch = 0, n;
	int more = 1, err;

	for (void *from = NULL; more > 0; from = &batch) {
		more = read_batch(map, &dump, from, &batch, &n);
		if (more < 0)
			return more;
		for (size_t i = 0; i < n; i++) {
			err = seen(arg, (char *)dump.keys + i * key_size,
				   (char *)dump.values + i * value_size);
			if (err)
				return err;
		}
	}
	return 0;
}

int kernel_maps_sites(int map, __u32 epoch, struct site_key **ret_keys,
		      struct site_counters **ret_values, size_t *ret_count)
{
	struct dump dump CLEANUP(dump) = {
		.key_size = sizeof(struct site_key),
		.value_size = sizeof(struct site_counters),
	};
	__u32 batch = 0, n;
	int more = 1;

	for (void *from = NULL; more > 0; from = &batch) {
		struct site_key *keys;
		struct site_counters *values;

		more = read_batch(map, &dump, from, &batch, &n);
		if (more < 0)
			return more;
		keys = dump.keys;
		values = dump.values;
		/* Keep those of the epoch. */
		for (size_t i = dump.count, end = dump.count + n; i < end; i++) {
			if (keys[i].epoch != (__u16)epoch)
				continue;
			keys[dump.count] = keys[i];
			values[dump.count++] = values[i];
		}
	}
	*ret_keys = take_ptr(dump.keys);
	*ret_values = take_ptr(dump.values);
	*ret_count = dump.count;
	return 0;
}

int kernel_maps_processes(int map,
			  int (*seen)(void *arg, __u32 serial, const struct process_info *info),
			  void *arg)
{
	struct dump dump CLEANUP(dump) = {
		.key_size = sizeof(__u32),
		.value_size = sizeof(struct process_info),
	};
	__u32 batch = 0, n;
	int more = 1, err = 0;

	for (void *from = NULL; more > 0; from = &batch) {
		more = read_batch(map, &dump, from, &batch, &n);
		if (more < 0)
			return more;
		dump.count += n;
	}
	for (size_t i = 0; i < dump.count && !err; i++)
		err = seen(arg, ((__u32 *)dump.keys)[i], &((struct process_info *)dump.values)[i]);
	return err;
}

int kernel_maps_threads(int map, struct threads *threads)
{
	struct dump dump CLEANUP(dump) = {
		.key_size = sizeof(struct thread_name),
		.value_size = sizeof(__u32),
	};
	__u32 batch = 0, n;
	int more = 1;

	for (void *from = NULL; more > 0; from = &batch) {
		dump.count = 0;
		more = read_batch(map, &dump, from, &batch, &n);
		if (more < 0)
			return more;
		for (size_t i = 0; i < n; i++)
			threads_add(threads, ((__u32 *)dump.values)[i],
				    &((struct thread_name *)dump.keys)[i]);
	}
	return 0;
}

/* As live_filter_slot() and live_forget() in bpf/live.bpf.h. */
void kernel_maps_forget(__u32 *filter, __u64 address)
{
	__u64 hash = (address >> 4) * 0x9e3779b97f4a7c15ull;

	__atomic_fetch_sub(&filter[hash >> (64 - LIVE_FILTER_BITS)], 1, __ATOMIC_SEQ_CST);
}

int kernel_maps_purge(int map, __u32 *filter, bool (*gone)(void *arg, __u32 serial), void *arg,
		      __u64 *ret_bytes)
{
	struct dump dump CLEANUP(dump) = {
		.key_size = sizeof(struct live_key),
		.value_size = sizeof(struct live_record),
	};
	__u32 batch = 0, n;
	int more = 1;

	for (void *from = NULL; more > 0; from = &batch) {
		const struct live_key *keys;
		const struct live_record *records;

		dump.count = 0;
		more = read_batch(map, &dump, from, &batch, &n);
		if (more < 0)
			return more;
		keys = dump.keys;
		records = dump.values;
		for (size_t i = 0; i < n; i++) {
			if (!gone(arg, keys[i].serial) || bpf_map_delete_elem(map, &keys[i]))
				continue;
			kernel_maps_forget(filter, keys[i].address);
			*ret_bytes += records[i].weight.bytes;
		}
	}
	return 0;
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
