/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of kernel.h about mappings: see bpf/mapping.bpf.h. */
#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "heaptap/mapping.h"
#include "kernel_private.h"

/* Who needs a program. */
#define FOR_ACCOUNT 1u
#define FOR_GROWTH  2u

struct syscall_programs {
	struct bpf_program *function;	/* where the kernel can patch it in */
	struct bpf_program *tracepoint; /* else */
	unsigned int needed;
};

/*
 * Functions that programs can be patched into are those that ftrace knows. Without tracefs nobody
 * can tell; the tracepoints need it as well.
 */
static bool has_function(const char *name)
{
	FILE *file = fopen("/sys/kernel/tracing/available_filter_functions", "re");
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, " \t\n")] = 0;
		found = !strcmp(line, name);
	}
	if (file)
		fclose(file);
	return found && libbpf_find_vmlinux_btf_id(name, BPF_TRACE_FENTRY) > 0;
}

#define PROGRAMS 10

static void list_programs(struct heaptap_bpf *object, struct syscall_programs ret[PROGRAMS])
{
	const struct syscall_programs programs[PROGRAMS] = {
		{object->progs.mmap_fexit, object->progs.mmap_exit, FOR_ACCOUNT | FOR_GROWTH},
		{object->progs.munmap_fentry, object->progs.munmap_enter, FOR_ACCOUNT},
		{object->progs.munmap_fexit, object->progs.munmap_exit, FOR_ACCOUNT},
		{object->progs.mremap_fentry, object->progs.mremap_enter, FOR_ACCOUNT | FOR_GROWTH},
		{object->progs.mremap_fexit, object->progs.mremap_exit, FOR_ACCOUNT | FOR_GROWTH},
		{object->progs.brk_fentry, object->progs.brk_enter, FOR_ACCOUNT | FOR_GROWTH},
		{object->progs.brk_fexit, object->progs.brk_exit, FOR_ACCOUNT | FOR_GROWTH},
		{object->progs.madvise_fexit, object->progs.madvise_exit, FOR_ACCOUNT},
		{object->progs.mprotect_fentry, object->progs.mprotect_enter,
		 FOR_ACCOUNT | FOR_GROWTH},
		{object->progs.mprotect_fexit, object->progs.mprotect_exit,
		 FOR_ACCOUNT | FOR_GROWTH},
	};

	memcpy(ret, programs, sizeof(programs));
}

void kernel_mappings_choose(struct heaptap_bpf *object, enum record_mode record,
			    enum mappings_mode mappings)
{
	unsigned int needed = mappings ? FOR_ACCOUNT : record == MODE_GROWTH ? FOR_GROWTH : 0;
	bool functions = needed && has_function("__x64_sys_mmap");
	struct syscall_programs programs[PROGRAMS];

	list_programs(object, programs);
	for (size_t i = 0; i < PROGRAMS; i++) {
		bool wanted = programs[i].needed & needed;

		bpf_program__set_autoload(programs[i].function, wanted && functions);
		bpf_program__set_autoload(programs[i].tracepoint, wanted && !functions);
	}
	if (mappings)
		bpf_map__set_max_entries(object->maps.mapping_events, MAPPING_RING_SIZE);
}

static int on_event(void *arg, void *data, size_t size)
{
	struct kernel *kernel = arg;
	struct kernel_mappings *mappings = &kernel->mappings;

	if (size >= sizeof(struct mapping_event) && !mappings->err)
		mappings->err = mappings->seen(mappings->arg, data);
	return 0;
}

static int attach_program(struct kernel_mappings *mappings, struct bpf_program *program)
{
	struct bpf_link *link;

	if (!bpf_program__autoload(program))
		return 0;
	link = bpf_program__attach(program);
	if (!link)
		return -errno;
	mappings->programs[mappings->count] = program;
	mappings->links[mappings->count++] = link;
	return 0;
}

int kernel_attach_mappings(struct kernel *kernel)
{
	struct syscall_programs programs[PROGRAMS];
	int err = 0;

	list_programs(kernel->object, programs);
	for (size_t i = 0; i < PROGRAMS && !err; i++) {
		err = attach_program(&kernel->mappings, programs[i].function);
		if (!err)
			err = attach_program(&kernel->mappings, programs[i].tracepoint);
	}
	if (err || !kernel->object->rodata->settings.mappings)
		return err;
	kernel->mappings.ring = ring_buffer__new(bpf_map__fd(kernel->object->maps.mapping_events),
						 on_event, kernel, NULL);
	return kernel->mappings.ring ? 0 : -errno;
}

void kernel_mappings_close(struct kernel *kernel)
{
	struct kernel_mappings *mappings = &kernel->mappings;

	for (size_t i = 0; i < mappings->count; i++)
		bpf_link__destroy(mappings->links[i]);
	mappings->count = 0;
	ring_buffer__free(mappings->ring);
}

int kernel_mapping_fd(const struct kernel *kernel)
{
	return kernel->mappings.ring ? ring_buffer__epoll_fd(kernel->mappings.ring) : -1;
}

int kernel_consume_mappings(struct kernel *kernel,
			    int (*seen)(void *arg, const struct mapping_event *event), void *arg)
{
	struct kernel_mappings *mappings = &kernel->mappings;
	int err;

	mappings->seen = seen;
	mappings->arg = arg;
	mappings->err = 0;
	err = ring_buffer__consume(mappings->ring);
	return err < 0 ? err : mappings->err;
}

__u64 kernel_mappings_missed(const struct kernel *kernel)
{
	__u64 missed = 0;

	for (size_t i = 0; i < kernel->mappings.count; i++) {
		struct bpf_prog_info info = {};
		__u32 size = sizeof(info);

		if (!bpf_obj_get_info_by_fd(bpf_program__fd(kernel->mappings.programs[i]), &info,
					    &size))
			missed += info.recursion_misses;
	}
	return missed;
}
