/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of kernel.c that asks the kernel side which ids it gives to files. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel_private.h"

/* Runs the identify_image iterator over our own mappings, one page of each file from `window`. */
static int read_identities(struct heaptap_bpf *object, uint64_t window, size_t count, __u32 *ids)
{
	union bpf_iter_link_info info = {.task.pid = getpid()};
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = &info, .link_info_len = sizeof(info));
	const uint64_t page = sysconf(_SC_PAGESIZE);
	struct image_identity identity;
	_cleanup_close_ int iterator = -1;
	struct bpf_link *link;
	ssize_t size;

	object->bss->identify_start = window;
	object->bss->identify_end = window + count * page;
	object->bss->identify_tgid = getpid();
	link = bpf_program__attach_iter(object->progs.identify_image, &opts);
	if (!link)
		return -errno;
	iterator = bpf_iter_create(bpf_link__fd(link));
	bpf_link__destroy(link);
	if (iterator < 0)
		return iterator;
	while ((size = read(iterator, &identity, sizeof(identity))) == sizeof(identity)) {
		size_t i = (identity.start - window) / page;

		if (i < count)
			ids[i] = identity.id;
	}
	return size < 0 ? -errno : 0;
}

int kernel_identify(struct kernel *kernel, const int *fds, size_t count, __u32 *ids)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	char *window;
	int err;

	memset(ids, 0, count * sizeof(*ids));
	if (!count)
		return 0;
	window = mmap(NULL, count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (window == MAP_FAILED)
		return -errno;
	/* A file that cannot be mapped leaves its page as it is, and its id 0. */
	for (size_t i = 0; i < count; i++)
		mmap(window + i * page, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, fds[i], 0);
	err = read_identities(kernel->object, (uintptr_t)window, count, ids);
	munmap(window, count * page);
	return err;
}
