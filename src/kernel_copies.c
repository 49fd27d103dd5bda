/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kernel_copies.h"

#include <bpf/bpf.h>
#include <errno.h>

#include "kernel_maps.h"

__u32 kernel_copies_due(const struct copy_maps *maps)
{
	return __atomic_load_n(maps->due, __ATOMIC_SEQ_CST);
}

bool kernel_copies_process(const struct copy_maps *maps, __u32 serial, struct process_info *ret)
{
	return !bpf_map_lookup_elem(maps->processes, &serial, ret);
}

int kernel_copies_live(const struct copy_maps *maps,
		       int (*seen)(void *arg, const void *key, const void *value), void *arg)
{
	return kernel_maps_each(maps->live, sizeof(struct live_key), sizeof(struct live_record),
				seen, arg);
}

int kernel_copies_kept(const struct copy_maps *maps,
		       int (*seen)(void *arg, const void *key, const void *value), void *arg)
{
	return kernel_maps_each(maps->kept, sizeof(struct fork_kept_key),
				sizeof(struct live_record), seen, arg);
}

int kernel_copies_make(const struct copy_maps *maps)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);

	return bpf_prog_test_run_opts(maps->program, &opts) ? -errno : 0;
}

struct cleaning {
	const struct copy_maps *maps;
	bool (*needed)(void *arg, const struct fork_kept_key *key,
		       const struct live_record *record);
	void *arg;
	/* The last one asked for, as a child frees many blocks. */
	__u32 serial;
	bool due;
};

static int clean_kept(void *arg, const void *key, const void *value)
{
	struct cleaning *cleaning = arg;
	const struct fork_kept_key *kept = key;

	if (!cleaning->needed(cleaning->arg, kept, value) &&
	    !bpf_map_delete_elem(cleaning->maps->kept, key))
		kernel_maps_forget(cleaning->maps->live_filter, kept->address);
	return 0;
}

int kernel_copies_clean_kept(const struct copy_maps *maps,
			     bool (*needed)(void *arg, const struct fork_kept_key *key,
					    const struct live_record *record),
			     void *arg)
{
	struct cleaning cleaning = {.maps = maps, .needed = needed, .arg = arg};

	return kernel_maps_each(maps->kept, sizeof(struct fork_kept_key),
				sizeof(struct live_record), clean_kept, &cleaning);
}

static int clean_free(void *arg, const void *key, const void *value)
{
	struct cleaning *cleaning = arg;
	const struct live_key *freed = key;
	struct process_info info;

	if (freed->serial != cleaning->serial) {
		cleaning->serial = freed->serial;
		cleaning->due =
			kernel_copies_process(cleaning->maps, freed->serial, &info) && info.fork;
	}
	if (!cleaning->due)
		bpf_map_delete_elem(cleaning->maps->frees, key);
	return 0;
}

int kernel_copies_clean_frees(const struct copy_maps *maps)
{
	struct cleaning cleaning = {.maps = maps};

	return kernel_maps_each(maps->frees, sizeof(struct live_key), sizeof(struct fork_free),
				clean_free, &cleaning);
}
