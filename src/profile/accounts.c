/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/accounts.h"

#include <string.h>

#include "heaptap/weight.h"

const struct account_group account_groups[GROUP_COUNT] = {
	[GROUP_MALLOC] = {ACCOUNT_BIT(ACCOUNT_MALLOC),
			  {"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"},
			  "inuse_space",
			  "alloc_space"},
	[GROUP_MAPPED] = {ACCOUNT_BIT(ACCOUNT_MAPPED),
			  {"map_objects", "map_space", "mapped_objects", "mapped_space",
			   "reserved_space"},
			  "mapped_space",
			  "map_space"},
	[GROUP_GROWTH] = {ACCOUNT_BIT(ACCOUNT_GROWTH),
			  {"growth_objects", "growth_space"},
			  "growth_space",
			  "growth_space"},
	[GROUP_FAULTS] = {ACCOUNTS_OF_FAULTS,
			  {"faults", "fault_space"},
			  "fault_space",
			  "fault_space"},
	[GROUP_SAMPLED] = {ACCOUNT_BIT(ACCOUNT_SAMPLED),
			   {"alloc_objects", "alloc_space"},
			   "alloc_space",
			   "alloc_space"},
};

static const char *unit_of(const char *type)
{
	size_t length = strlen(type);

	return length > 6 && !strcmp(type + length - 6, "_space") ? "bytes" : "count";
}

void accounts_add_types(struct profile *profile, uint32_t accounts)
{
	const char *default_type = NULL;

	for (size_t i = 0; i < GROUP_COUNT; i++) {
		if (!(account_groups[i].accounts & accounts))
			continue;
		for (size_t type = 0; type < GROUP_MAX_TYPES && account_groups[i].types[type];
		     type++)
			profile_add_sample_type(profile, account_groups[i].types[type],
						unit_of(account_groups[i].types[type]));
		if (!default_type)
			default_type = account_groups[i].default_type;
	}
	profile->default_sample_type = profile_string(profile, default_type);
}

static int64_t round_bytes(unsigned __int128 bytes)
{
	return (bytes + (1 << (WEIGHT_BYTES_SHIFT - 1))) >> WEIGHT_BYTES_SHIFT;
}

static int64_t round_objects(unsigned __int128 objects)
{
	return (objects + (1 << (WEIGHT_OBJECTS_SHIFT - 1))) >> WEIGHT_OBJECTS_SHIFT;
}

bool accounts_values(uint32_t accounts, const struct heap_site *site,
		     int64_t values[ACCOUNTS_MAX_VALUES])
{
	const struct heap_sum inuse = heap_inuse(site);
	const int64_t own[GROUP_MAX_TYPES] = {
		round_objects(site->alloc.objects),
		round_bytes(site->alloc.bytes),
		round_objects(inuse.objects),
		round_bytes(inuse.bytes),
		(int64_t)site->reserved,
	};
	size_t at = 0;
	bool any = false;

	for (size_t i = 0; i < GROUP_COUNT; i++) {
		bool is_own = account_groups[i].accounts & ACCOUNT_BIT(site->key.account);

		if (!(account_groups[i].accounts & accounts))
			continue;
		for (size_t type = 0; type < GROUP_MAX_TYPES && account_groups[i].types[type];
		     type++) {
			values[at] = is_own ? own[type] : 0;
			any |= values[at] != 0;
			at++;
		}
	}
	return any;
}

int64_t accounts_mean_size(const struct heap_site *site)
{
	/* What is only inherited was not allocated here. */
	const struct heap_sum sum =
		round_objects(site->alloc.objects) ? site->alloc : heap_inuse(site);
	int64_t objects = round_objects(sum.objects);

	return objects ? round_bytes(sum.bytes) / objects : 0;
}

const char *accounts_memory(enum account account)
{
	switch (account) {
	case ACCOUNT_FAULT_ANONYMOUS:
		return "anonymous";
	case ACCOUNT_FAULT_FILE:
		return "file";
	case ACCOUNT_FAULT_STACK:
		return "stack";
	default:
		return NULL;
	}
}
