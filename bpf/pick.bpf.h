/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether a stream's next bytes hold a sample; each CPU follows a stream of its own. */
#ifndef HEAPTAP_PICK_BPF_H
#define HEAPTAP_PICK_BPF_H

#include "maps.bpf.h"
#include "sampler.bpf.h"

static __always_inline __u64 random64(void)
{
	return (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
}

/* The sample lies within this allocation, or this CPU has not drawn its first gap yet. */
__noinline int sampler_reached(__u64 size)
{
	struct sampler_state *state;
	__u32 key = 0;

	state = bpf_map_lookup_elem(&sampler, &key);
	if (!state)
		return 0;
	if (!state->ready) {
		state->ready = 1;
		state->bytes_left = sampler_gap(&sampling, random64());
	}
	return sampler_advance(&sampling, &state->bytes_left, size, random64());
}

/* The hot path of an allocation. */
static __always_inline bool sampler_picks(__u64 size)
{
	struct sampler_state *state;
	__u32 key = 0;

	if (settings.exact)
		return true;
	state = bpf_map_lookup_elem(&sampler, &key);
	if (!state)
		return false;
	return !sampler_passes(&state->bytes_left, size) && sampler_reached(size);
}

#endif
