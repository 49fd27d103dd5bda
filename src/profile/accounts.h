/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sample types that each account has in a profile, and a site's values for them. */
#ifndef HEAPTAP_PROFILE_ACCOUNTS_H
#define HEAPTAP_PROFILE_ACCOUNTS_H

#include "profile/heap.h"
#include "profile/profile.h"

/* Of all accounts together. */
#define ACCOUNTS_MAX_VALUES 15

/* A set of accounts. */
#define ACCOUNT_BIT(account) (1u << (account))

/* The accounts of faults. */
#define ACCOUNTS_OF_FAULTS                                                                         \
	(ACCOUNT_BIT(ACCOUNT_FAULT_ANONYMOUS) | ACCOUNT_BIT(ACCOUNT_FAULT_FILE) |                  \
	 ACCOUNT_BIT(ACCOUNT_FAULT_STACK))

/* Accounts that share sample types. */
enum account_group_id {
	GROUP_MALLOC,
	GROUP_MAPPED,
	GROUP_GROWTH,
	GROUP_FAULTS,
	GROUP_SAMPLED, /* malloc's, where frees are not seen: never in one profile with it */
	GROUP_COUNT
};

#define GROUP_MAX_TYPES 5

struct account_group {
	uint32_t accounts;
	const char *types[GROUP_MAX_TYPES];
	const char *default_type;
	const char *stack_type; /* by which its stacks are judged */
};

extern const struct account_group account_groups[GROUP_COUNT];

/* Adds the sample types of a set, in order, and sets the profile's default. */
void accounts_add_types(struct profile *profile, uint32_t accounts);

/*
 * A site's values, one for each of the set's types; the types of other accounts are 0. Returns
 * false if all are.
 */
bool accounts_values(uint32_t accounts, const struct heap_site *site,
		     int64_t values[ACCOUNTS_MAX_VALUES]);

/* The mean size of what a site has, in bytes; 0 if it has nothing. */
int64_t accounts_mean_size(const struct heap_site *site);

/* What kind of memory an account is about, for the label "memory"; NULL if that says nothing. */
const char *accounts_memory(enum account account);

#endif
