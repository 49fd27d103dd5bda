/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include "unwind/upload.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <uthash.h>

struct known_rule {
	struct unwind_rule rule;
	uint16_t index;
	UT_hash_handle hh;
};

struct upload {
	struct upload_maps maps;
	struct known_rule *rules;
	uint32_t rule_count;
};

int upload_new(const struct upload_maps *maps, struct upload **ret)
{
	struct upload *upload = calloc(1, sizeof(*upload));

	if (!upload)
		return -ENOMEM;
	upload->maps = *maps;
	*ret = upload;
	return 0;
}

void upload_free(struct upload *upload)
{
	struct known_rule *rule, *next;

	if (!upload)
		return;
	HASH_ITER (hh, upload->rules, rule, next) {
		HASH_DEL(upload->rules, rule);
		free(rule);
	}
	free(upload);
}

/* The index of a rule, given and written to the kernel at first sight. */
static int rule_index(struct upload *upload, const struct unwind_rule *rule, uint16_t *ret)
{
	_cleanup_free_ struct known_rule *added = NULL;
	struct known_rule *known;
	uint32_t index;

	HASH_FIND(hh, upload->rules, rule, sizeof(*rule), known);
	if (known) {
		*ret = known->index;
		return 0;
	}
	if (upload->rule_count == UNWIND_MAX_RULES)
		return -ENOSPC;
	added = calloc(1, sizeof(*added));
	if (!added)
		return -ENOMEM;
	index = upload->rule_count;
	if (bpf_map_update_elem(upload->maps.rules, &index, rule, BPF_ANY))
		return -errno;
	added->rule = *rule;
	added->index = index;
	HASH_ADD(hh, upload->rules, rule, sizeof(added->rule), added);
	if (!added->hh.tbl)
		return -ENOMEM;
	added = NULL;
	upload->rule_count++;
	*ret = index;
	return 0;
}

int upload_table(struct upload *upload, const struct unwind_rows *rows)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_INNER_MAP);
	_cleanup_free_ struct unwind_row *values = NULL;
	_cleanup_free_ uint32_t *keys = NULL;
	_cleanup_close_ int table = -1;
	uint32_t count = rows->count + 1;
	int err;

	if (rows->count > UNWIND_MAX_ROWS)
		return -E2BIG;
	values = calloc(count, sizeof(*values));
	keys = calloc(count, sizeof(*keys));
	if (!values || !keys)
		return -ENOMEM;
	values[0].offset = rows->count;
	for (uint32_t i = 1; i < count; i++) {
		keys[i] = i;
		values[i].offset = rows->entries[i - 1].offset;
		err = rule_index(upload, &rows->entries[i - 1].rule, &values[i].rule);
		if (err)
			return err;
	}
	table = bpf_map_create(BPF_MAP_TYPE_ARRAY, "heaptap_rows", sizeof(*keys), sizeof(*values),
			       count, &opts);
	if (table < 0)
		return -errno;
	if (bpf_map_update_batch(table, keys, values, &count, NULL))
		return -errno;
	return take_fd(table);
}

int upload_publish(struct upload *upload, uint32_t image, int table, uint32_t flags)
{
	if (table >= 0 && bpf_map_update_elem(upload->maps.tables, &image, &table, BPF_ANY))
		return -errno;
	flags |= UNWIND_BUILT;
	if (bpf_map_update_elem(upload->maps.images, &image, &flags, BPF_ANY))
		return -errno;
	return 0;
}

void upload_withdraw(struct upload *upload, uint32_t image)
{
	uint32_t flags = 0;

	bpf_map_update_elem(upload->maps.images, &image, &flags, BPF_ANY);
	bpf_map_delete_elem(upload->maps.tables, &image);
}
