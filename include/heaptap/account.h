/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a site's numbers are about. An account has sample types of its own, so that numbers of
 * different ones never meet in a sum.
 */
#ifndef HEAPTAP_ACCOUNT_H
#define HEAPTAP_ACCOUNT_H

enum account {
	ACCOUNT_MALLOC,
	ACCOUNT_MAPPED, /* address space, kept by the loader: see src/mappings.c */
	ACCOUNT_GROWTH, /* likewise, only what was added */
	ACCOUNT_FAULT_ANONYMOUS,
	ACCOUNT_FAULT_FILE,
	ACCOUNT_FAULT_STACK,
	ACCOUNT_SAMPLED, /* what an allocator samples by itself and frees unseen */
	ACCOUNT_COUNT
};

/* What a session records. */
enum record_mode {
	MODE_HEAP,    /* every call of the allocator */
	MODE_GROWTH,  /* what made the heap grow */
	MODE_FAULTS,  /* what made memory resident */
	MODE_SAMPLER, /* what the allocator itself samples */
	MODE_COUNT
};

/* Whether mappings are accounted for, too. */
enum mappings_mode {
	MAPPINGS_NONE,
	MAPPINGS_TOO,
	MAPPINGS_ONLY, /* and nothing else */
};

#endif
