/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of kernel.c that is about allocators which sample by themselves. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "kernel_private.h"

static void choose_program(struct bpf_program *program, bool wanted, int attach_type)
{
	bpf_program__set_autoload(program, wanted);
	if (wanted && attach_type)
		bpf_program__set_expected_attach_type(program, attach_type);
}

void kernel_samplers_choose(struct heaptap_bpf *object, bool wanted, enum attach_mode mode)
{
	bool session = mode == ATTACH_SESSION;
	int type = attach_entry_type(mode);

	choose_program(object->progs.sampled_session, wanted && session, attach_session_type());
	choose_program(object->progs.sampled_enter, wanted && !session, type);
	choose_program(object->progs.sampled_return, wanted && !session, type);
	choose_program(object->progs.sampled_mark, wanted, type);
}

static int program_fd(const struct bpf_program *program)
{
	return bpf_program__autoload(program) ? bpf_program__fd(program) : -1;
}

void kernel_samplers_programs(const struct heaptap_bpf *object, struct attach_programs *programs)
{
	programs->sampled_session = program_fd(object->progs.sampled_session);
	programs->sampled_enter = program_fd(object->progs.sampled_enter);
	programs->sampled_return = program_fd(object->progs.sampled_return);
	programs->sampled_mark = program_fd(object->progs.sampled_mark);
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
