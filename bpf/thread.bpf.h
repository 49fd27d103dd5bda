/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers the names of threads. Only with settings.label_threads is anything here called. */
#ifndef HEAPTAP_THREAD_BPF_H
#define HEAPTAP_THREAD_BPF_H

#include "maps.bpf.h"

/*
 * The number of the current thread's name as it is now; 0, counted, if there are too many. A global
 * function: the name's place on the stack is not there any more when stacks are walked.
 */
__noinline __u32 thread_number(__u64 bytes)
{
	struct thread_name name = {};
	__u32 number, *known;

	bpf_get_current_comm(&name, sizeof(name));
	known = bpf_map_lookup_elem(&thread_names, &name);
	if (known)
		return *known;
	/* First a look, so that the count does not go on when all numbers are given. */
	if (thread_count < THREAD_NAMES_MAX) {
		/* A race between two threads of one name wastes a number, no more. */
		number = __sync_fetch_and_add(&thread_count, 1) + 1;
		if (number <= THREAD_NAMES_MAX &&
		    !bpf_map_update_elem(&thread_names, &name, &number, BPF_NOEXIST))
			return number;
		known = bpf_map_lookup_elem(&thread_names, &name);
		if (known)
			return *known;
	}
	loss_add(LOSS_THREAD_FULL, bytes);
	return 0;
}

#endif
