/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of kernel.c that is about allocators which sample by themselves. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "kernel_private.h"

void kernel_samplers_choose(struct heaptap_bpf *object, bool wanted, enum attach_mode mode)
{
	bool session = mode == ATTACH_SESSION;
	int type = attach_entry_type(mode);

	kernel_choose_program(object->progs.sampled_session, wanted && session,
			      attach_session_type());
	kernel_choose_program(object->progs.sampled_enter, wanted && !session, type);
	kernel_choose_program(object->progs.sampled_return, wanted && !session, type);
	kernel_choose_program(object->progs.sampled_mark, wanted, type);
}

void kernel_samplers_programs(const struct heaptap_bpf *object, struct attach_programs *programs)
{
	programs->sampled_session = kernel_program_fd(object->progs.sampled_session);
	programs->sampled_enter = kernel_program_fd(object->progs.sampled_enter);
	programs->sampled_return = kernel_program_fd(object->progs.sampled_return);
	programs->sampled_mark = kernel_program_fd(object->progs.sampled_mark);
}

int kernel_set_sampler_point(struct kernel *kernel, __u32 index, const struct sampler_point *point)
{
	return bpf_map__update_elem(kernel->object->maps.sampler_points, &index, sizeof(index),
				    point, sizeof(*point), BPF_ANY);
}

void kernel_read_estimates(struct kernel *kernel, uint64_t ret[ESTIMATE_COUNT])
{
	const __u64 *counts = kernel->object->bss->estimate_counts;

	for (int i = 0; i < ESTIMATE_COUNT; i++)
		ret[i] = __atomic_load_n(&counts[i], __ATOMIC_RELAXED);
}
