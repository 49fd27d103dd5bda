/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A byte that picks the kind, then any bytes as that state file, or as a file of cgroups. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proc/cgroup.h"
#include "proc/container_path.h"
#include "proc/container_stores.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_cgroups(const char *text)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = NULL;
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	struct container_path found;

	cgroup_mounts_parse(text, "", &mounts);
	for (size_t i = 0; mounts && i < mounts->count; i++)
		free(cgroup_mount_directory(&mounts->entries[i], text));
	if (process_cgroups_parse(text, &cgroups))
		return;
	for (size_t i = 0; i < cgroups->count; i++) {
		const char *path = cgroups->entries[i].path;

		if (container_path_parse(path, &found) &&
		    (!*found.id || found.length > strlen(path)))
			__builtin_trap();
		if (container_path_length(path, text) > strlen(path))
			__builtin_trap();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct container_records records _cleanup_container_records_ = {};
	char *text _cleanup_free_ = malloc(size + 1);

	if (!text || !size)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = 0;
	if (data[0] == '#') {
		fuzz_cgroups(text);
		return 0;
	}
	/* Twice: the second time meets the records of the first. */
	for (int i = 0; i < 2; i++)
		container_records_parse((data[0] - 'a') % (unsigned int)CONTAINER_FILE_COUNT,
					"/a/b/userdata/x", text, size - 1, &records);
	for (size_t i = 0; i < records.count; i++)
		if (!*records.entries[i].id || records.entries[i].init_pid < 0)
			__builtin_trap();
	return 0;
}
