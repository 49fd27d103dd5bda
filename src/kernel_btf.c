/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What only the running kernel's own description of its types tells. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernel.h"

int kernel_cgroup_subsys(const char *controller)
{
	/* Without it, kernel_open() fails, and says why. */
	struct btf *btf = access("/sys/kernel/btf/vmlinux", R_OK) ? NULL : btf__load_vmlinux_btf();
	const struct btf_type *type;
	char name[64];
	int id, subsys = -ENOENT;

	if (!btf)
		return -errno;
	/* Its name in v1 is not the kernel's own. */
	snprintf(name, sizeof(name), "%s_cgrp_id",
		 !strcmp(controller, "blkio") ? "io" : controller);
	id = btf__find_by_name_kind(btf, "cgroup_subsys_id", BTF_KIND_ENUM);
	type = id < 0 ? NULL : btf__type_by_id(btf, id);
	for (int i = 0; type && i < btf_vlen(type); i++) {
		const struct btf_enum *value = btf_enum(type) + i;

		if (!strcmp(btf__name_by_offset(btf, value->name_off), name))
			subsys = value->val;
	}
	btf__free(btf);
	return subsys;
}
