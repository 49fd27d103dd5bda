/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters per site and epoch, and the records of live samples. */
#ifndef HEAPTAP_SITE_H
#define HEAPTAP_SITE_H

#include "heaptap/account.h"
#include "heaptap/types.h"
#include "heaptap/weight.h"

#define SITES_MAX 65536
/* With so many the loader makes room. */
#define SITES_MANY (SITES_MAX / 2)

struct site_key {
	__u16 epoch;	   /* its low bits: only EPOCH_RECORDS of them wait to be drained */
	__u16 thread : 13; /* the number of the allocating thread's name, see thread.h */
	__u16 account : 3; /* enum account */
	__u32 serial;
	__u64 stack_id;
};

/* Sums of weights within one epoch. */
struct site_counters {
	struct weight_sum alloc;
	struct weight_sum freed;
};

struct live_key {
	__u64 address;
	__u32 serial;
	__u32 inherited; /* a copy of a record of the parent's */
};

struct live_record {
	__u64 stack_id;
	struct weight weight;
	__u32 born; /* fork clock, see heaptap/fork_copy.h */
	__u32 pad;
};

/*
 * In front of the live table: how many live samples there are by hash of their address, so that
 * the free of an unsampled block costs one read. 256 Ki counters, 1 MiB, fit the L2 cache.
 */
#define LIVE_FILTER_BITS 18
#define LIVE_FILTER_SIZE (1u << LIVE_FILTER_BITS)

_Static_assert(sizeof(struct site_key) == 16, "site_key has no padding");
_Static_assert(ACCOUNT_COUNT <= 1 << 3, "an account fits site_key");
_Static_assert(sizeof(struct live_key) == 16, "live_key has no padding");

#endif
