/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The least that can run at the two probe points: nothing. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* In a session probe, 1 means: no probe at the return. */
SEC("uprobe")
int floor_alloc(struct pt_regs *ctx)
{
	return 1;
}

SEC("uprobe")
int floor_free(struct pt_regs *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
