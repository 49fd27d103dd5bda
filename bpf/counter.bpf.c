/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts the calls that pass probe points: what a recording would have to pay for, at the price of
 * the trap alone.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#include "heaptap/counter.h"
#include "heaptap/probe.h"
#include "registers.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_MAX_POINTS);
	__type(key, __u32);
	__type(value, struct counter_value);
} counts SEC(".maps");

/* Of this process only, and nothing while it is 0. */
volatile __u32 target_tgid = 0;
/* Set before it is attached. */
volatile __u64 sample_bytes = 1;

/* What the call asks for; 0 if malloc, which counts too, is asked for it. */
static __always_inline __u64 wanted_bytes(const struct pt_regs *regs, const struct probe_spec *spec)
{
	__u64 size = register_read(regs, spec->size_reg);
	__u64 aux = register_read(regs, spec->aux_reg);

	if (spec->flags & PROBE_SKIP_NULL_OLD && !register_read(regs, spec->ptr_reg))
		return 0;
	if (spec->flags & PROBE_SKIP_SMALL_ALIGN && aux <= PROBE_SMALL_ALIGN)
		return 0;
	if (spec->kind == PROBE_CALLOC || spec->kind == PROBE_REALLOCARRAY) {
		if (aux && size >= COUNTER_MAX_BYTES / aux)
			return 0;
		size *= aux;
	}
	return size < COUNTER_MAX_BYTES ? size : 0;
}

/* Programs may be preempted by another thread's on the same CPU: hence the atomic sums. */
SEC("uprobe")
int count_call(struct pt_regs *ctx)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	struct counter_value *value;
	__u32 index = spec.offset;
	__u64 bytes;

	if (bpf_get_current_pid_tgid() >> 32 != target_tgid)
		return 0;
	value = bpf_map_lookup_elem(&counts, &index);
	if (!value)
		return 0;
	__sync_fetch_and_add(&value->calls, 1);
	if (spec.kind == PROBE_FREE)
		return 0;
	bytes = wanted_bytes(ctx, &spec);
	__sync_fetch_and_add(&value->bytes, bytes);
	__sync_fetch_and_add(&value->sampled_bytes, bytes < sample_bytes ? bytes : sample_bytes);
	return 0;
}
