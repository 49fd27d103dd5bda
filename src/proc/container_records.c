/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc/container_records.h"

#include <errno.h>
#include <string.h>

#include "proc/container_path.h"

void container_record_clear(struct container_record *record)
{
	free(record->id);
	free(record->name);
	free(record->pod);
	free(record->cgroup);
	free(record->home);
	*record = (struct container_record){};
}

void container_records_fini(struct container_records *records)
{
	for (size_t i = 0; i < records->count; i++)
		container_record_clear(&records->entries[i]);
	free(records->entries);
	*records = (struct container_records){};
}

static void fill(char **to, char **from)
{
	if (!*to || !**to) {
		free(*to);
		*to = take_ptr(*from);
	}
}

static bool is_same(const struct container_record *a, const struct container_record *b)
{
	if (strcmp(a->id, b->id))
		return false;
	if (container_is_hex_id(a->id, strlen(a->id)) ||
	    (a->init_pid && a->init_pid == b->init_pid))
		return true;
	/* Names are the users', who may use one in two places. */
	if (a->home && b->home)
		return !strcmp(a->home, b->home);
	return !strcmp(a->runtime, b->runtime) && (!a->init_pid || !b->init_pid);
}

int container_records_add(struct container_records *records, struct container_record *record)
{
	for (size_t i = 0; i < records->count; i++) {
		struct container_record *known = &records->entries[i];

		if (!is_same(known, record))
			continue;
		fill(&known->name, &record->name);
		fill(&known->pod, &record->pod);
		fill(&known->cgroup, &record->cgroup);
		fill(&known->home, &record->home);
		known->sandbox |= record->sandbox;
		/* Files below /run are from this boot, and come later than those of /var. */
		if (record->init_pid) {
			if (record->init_pid != known->init_pid || record->start_ticks)
				known->start_ticks = record->start_ticks;
			known->init_pid = record->init_pid;
		}
		container_record_clear(record);
		return 0;
	}
	if (records->count == records->capacity) {
		size_t wanted = records->capacity ? records->capacity * 2 : 16;
		struct container_record *entries =
			reallocarray(records->entries, wanted, sizeof(*entries));

		if (!entries) {
			container_record_clear(record);
			return -ENOMEM;
		}
		records->entries = entries;
		records->capacity = wanted;
	}
	records->entries[records->count++] = *record;
	*record = (struct container_record){};
	return 0;
}
