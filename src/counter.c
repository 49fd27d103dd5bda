/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "counter.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "counter.skel.h"

struct counter {
	struct counter_bpf *object;
	struct attach *attach;
	pid_t pid;
	int program;
	int cpu_count;
	uint32_t count; /* of indexes given out */
};

static int libbpf_quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

static int load(struct counter *counter, enum attach_mode mode, pid_t pid, uint64_t sample_bytes)
{
	const struct attach_programs none = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
	libbpf_print_fn_t print = libbpf_set_print(libbpf_quiet);
	struct counter_bpf *object = counter->object = counter_bpf__open();
	int err = object ? 0 : -errno, type = attach_entry_type(mode);

	if (!err && type)
		bpf_program__set_expected_attach_type(object->progs.count_call, type);
	if (!err)
		err = counter_bpf__load(object);
	libbpf_set_print(print);
	if (err)
		return err;
	counter->pid = pid;
	object->data->sample_bytes = sample_bytes;
	counter->program = bpf_program__fd(object->progs.count_call);
	return attach_new(mode, &none, &pid, 1, &counter->attach);
}

int counter_open(enum attach_mode mode, pid_t pid, uint64_t sample_bytes, struct counter **ret)
{
	struct counter *counter CLEANUP(counter) = calloc(1, sizeof(*counter));
	int err;

	if (!counter)
		return -ENOMEM;
	counter->cpu_count = libbpf_num_possible_cpus();
	if (counter->cpu_count < 0)
		return counter->cpu_count;
	err = load(counter, mode, pid, sample_bytes);
	if (err)
		return err;
	*ret = take_ptr(counter);
	return 0;
}

void counter_close(struct counter *counter)
{
	if (!counter)
		return;
	attach_free(counter->attach);
	counter_bpf__destroy(counter->object);
	free(counter);
}

int counter_add(struct counter *counter, int fd, const struct module_points *points)
{
	_cleanup_free_ uint64_t *offsets = calloc(points->count + 1, sizeof(*offsets));
	_cleanup_free_ uint64_t *cookies = calloc(points->count + 1, sizeof(*cookies));

	if (!offsets || !cookies)
		return -ENOMEM;
	if (points->count > COUNTER_MAX_POINTS - counter->count)
		return -E2BIG;
	for (size_t i = 0; i < points->count; i++) {
		struct probe_spec spec = points->entries[i].spec;

		offsets[i] = spec.offset;
		spec.offset = counter->count++;
		cookies[i] = probe_cookie(&spec);
	}
	return attach_offsets(counter->attach, fd, counter->program, offsets, cookies,
			      points->count, false);
}

int counter_add_place(struct counter *counter, int fd, uint64_t offset, bool at_return)
{
	struct probe_spec spec = {.kind = PROBE_FREE, .offset = counter->count};
	uint64_t cookie = probe_cookie(&spec);

	if (counter->count == COUNTER_MAX_POINTS)
		return -E2BIG;
	counter->count++;
	return attach_offsets(counter->attach, fd, counter->program, &offset, &cookie, 1,
			      at_return);
}

void counter_start(struct counter *counter)
{
	counter->object->bss->target_tgid = counter->pid;
}

int counter_read(const struct counter *counter, uint32_t index, struct counter_value *ret)
{
	size_t size = counter->cpu_count * sizeof(struct counter_value);
	_cleanup_free_ struct counter_value *values = calloc(1, size);
	struct counter_value sum = {};
	int err;

	if (!values)
		return -ENOMEM;
	err = bpf_map__lookup_elem(counter->object->maps.counts, &index, sizeof(index), values,
				   size, 0);
	if (err)
		return err;
	for (int cpu = 0; cpu < counter->cpu_count; cpu++) {
		sum.calls += values[cpu].calls;
		sum.bytes += values[cpu].bytes;
		sum.sampled_bytes += values[cpu].sampled_bytes;
	}
	*ret = sum;
	return 0;
}
