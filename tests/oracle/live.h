/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the live oracle's BPF program hands over: a walked stack, and what libdwfl needs for it. */
#ifndef HEAPTAP_ORACLE_LIVE_H
#define HEAPTAP_ORACLE_LIVE_H

#include "heaptap/types.h"

#define SAMPLE_PAGE  4096
#define SAMPLE_PAGES 64
/* rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip: the order of DWARF. */
#define SAMPLE_REGISTERS 17

struct sample {
	__u64 stack_id;
	__u64 registers[SAMPLE_REGISTERS]; /* at malloc's entry */
	__u64 base;			   /* address of the first byte below */
	__u64 size;			   /* how much could be read */
	__u8 memory[SAMPLE_PAGES * SAMPLE_PAGE];
};

#endif
