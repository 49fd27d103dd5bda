/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* User registers by number, as probe.h counts them. */
#ifndef HEAPTAP_REGISTERS_BPF_H
#define HEAPTAP_REGISTERS_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/*
 * The barrier keeps the compiler from merging the loads into one at a computed offset, which the
 * verifier refuses for a context.
 */
#define REGISTER(number, name)                                                                     \
	case number:                                                                               \
		value = regs->name;                                                                \
		barrier_var(value);                                                                \
		break

static __always_inline __u64 register_read(const struct pt_regs *regs, __u32 number)
{
	__u64 value = 0;

	switch (number) {
		REGISTER(7, di);
		REGISTER(6, si);
		REGISTER(2, dx);
		REGISTER(1, cx);
		REGISTER(0, ax);
		REGISTER(3, bx);
		REGISTER(5, bp);
		REGISTER(8, r8);
		REGISTER(9, r9);
		REGISTER(10, r10);
		REGISTER(11, r11);
		REGISTER(12, r12);
		REGISTER(13, r13);
		REGISTER(14, r14);
		REGISTER(15, r15);
	}
	return value;
}

#undef REGISTER

#endif
