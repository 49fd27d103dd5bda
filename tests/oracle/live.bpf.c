/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walker as it is, and beside each of its stacks a copy of the registers and the memory that it
 * was walked from. The whole of heaptap's BPF object is here; the loader takes only what it needs.
 */
#include "heaptap.bpf.c"

#include "live.h"

/* One call in so many is taken, at random. */
const volatile __u32 sample_every = 1;
volatile __u64 samples_dropped = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024 * 1024);
} samples SEC(".maps");

SEC("uprobe")
int live_enter(struct pt_regs *ctx)
{
	__u64 pc, sp = ctx->sp;
	struct sample *sample;
	__u32 i;

	if (bpf_get_prandom_u32() % sample_every ||
	    bpf_probe_read_user(&pc, sizeof(pc), (const void *)sp))
		return 0;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		__sync_fetch_and_add(&samples_dropped, 1);
		return 0;
	}
	sample->registers[0] = ctx->ax;
	sample->registers[1] = ctx->dx;
	sample->registers[2] = ctx->cx;
	sample->registers[3] = ctx->bx;
	sample->registers[4] = ctx->si;
	sample->registers[5] = ctx->di;
	sample->registers[6] = ctx->bp;
	sample->registers[7] = sp;
	sample->registers[8] = ctx->r8;
	sample->registers[9] = ctx->r9;
	sample->registers[10] = ctx->r10;
	sample->registers[11] = ctx->r11;
	sample->registers[12] = ctx->r12;
	sample->registers[13] = ctx->r13;
	sample->registers[14] = ctx->r14;
	sample->registers[15] = ctx->r15;
	sample->registers[16] = ctx->ip;
	sample->base = sp & ~(__u64)(SAMPLE_PAGE - 1);
	sample->size = 0;
	for (i = 0; i < SAMPLE_PAGES; i++) {
		if (bpf_probe_read_user(sample->memory + i * SAMPLE_PAGE, SAMPLE_PAGE,
					(const void *)(sample->base + i * SAMPLE_PAGE)))
			break;
		sample->size += SAMPLE_PAGE;
	}
	sample->stack_id = stack_capture(pc, sp + 8, ctx->bp, 0, 0);
	bpf_ringbuf_submit(sample, 0);
	return 0;
}
