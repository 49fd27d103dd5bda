/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "heaptap/throw.h"
#include "kernel_maps.h"
#include "kernel_private.h"
#include "probe/sampling.h"
#include "proc/process.h"
#include "util/clock.h"

/* Where every thread may have its own: 34 MB instead of 8. */
#define MAX_SITES_OF_THREADS (1u << 18)

static bool libbpf_verbose;

static int libbpf_log(enum libbpf_print_level level, const char *format, va_list args)
{
	if (!libbpf_verbose || level == LIBBPF_DEBUG)
		return 0;
	return vfprintf(stderr, format, args);
}

/* What the programs report is in the maps: an event only says which one to look at. */
static int event_note(void *arg, void *data, size_t size)
{
	struct kernel *kernel = arg;
	const struct event *event = data;

	if (size >= sizeof(*event) && event->type < 32)
		kernel->event_types |= 1u << event->type;
	return 0;
}

static int event_ignore(void *arg, void *data, size_t size)
{
	return 0;
}

void kernel_choose_program(struct bpf_program *program, bool wanted, int attach_type)
{
	bpf_program__set_autoload(program, wanted);
	if (wanted && attach_type)
		bpf_program__set_expected_attach_type(program, attach_type);
}

/* probes: of allocation functions. */
static void choose_programs(struct heaptap_bpf *object, enum attach_mode mode, bool probes)
{
	int type = attach_entry_type(mode);
	bool session = mode == ATTACH_SESSION;

	kernel_choose_program(object->progs.alloc_session, probes && session,
			      attach_session_type());
	kernel_choose_program(object->progs.realloc_session, probes && session,
			      attach_session_type());
	kernel_choose_program(object->progs.alloc_enter, probes && !session, type);
	kernel_choose_program(object->progs.alloc_return, probes && !session, type);
	kernel_choose_program(object->progs.realloc_enter, probes && !session, type);
	kernel_choose_program(object->progs.realloc_return, probes && !session, type);
	kernel_choose_program(object->progs.free_enter, probes, type);
	kernel_choose_program(object->progs.throw_enter, probes, type);
}

static void choose_fault_programs(struct heaptap_bpf *object, bool wanted)
{
	kernel_choose_program(object->progs.fault_enter, wanted, 0);
	kernel_choose_program(object->progs.fault_minor, wanted, 0);
	kernel_choose_program(object->progs.fault_major, wanted, 0);
	kernel_choose_program(object->progs.find_page_tables, wanted, 0);
}

int kernel_program_fd(const struct bpf_program *program)
{
	return bpf_program__autoload(program) ? bpf_program__fd(program) : -1;
}

int kernel_open(const struct kernel_options *options, struct kernel **ret)
{
	_cleanup_free_ struct sampling_tables *tables = NULL;
	struct kernel *kernel CLEANUP(kernel) = NULL;
	struct heaptap_bpf *object;
	int err;

	if (access("/sys/kernel/btf/vmlinux", R_OK))
		return -ENOENT;
	kernel = calloc(1, sizeof(*kernel));
	tables = calloc(1, sizeof(*tables));
	if (!kernel || !tables)
		return -ENOMEM;
	libbpf_verbose = options->verbose;
	libbpf_set_print(libbpf_log);
	kernel->cpu_count = libbpf_num_possible_cpus();
	if (kernel->cpu_count < 0)
		return kernel->cpu_count;
	object = kernel->object = heaptap_bpf__open();
	if (!object)
		return -errno;
	if (options->label_threads && threads_new(&kernel->threads))
		return -ENOMEM;
	sampling_tables_fill(tables, options->sample_bytes);
	memcpy((void *)&object->rodata->sampling, tables, sizeof(*tables));
	object->rodata->settings = (struct settings){
		.alloc_interval = options->alloc_interval << WEIGHT_BYTES_SHIFT,
		.free_interval = options->free_interval << WEIGHT_BYTES_SHIFT,
		.inuse_interval = options->inuse_interval << WEIGHT_BYTES_SHIFT,
		.exact = options->sample_bytes == 1,
		.session = options->mode == ATTACH_SESSION,
		.scope = options->scope.kind,
		.follow = options->scope.follow,
		.cgroup_subsys = options->scope.cgroup_subsys,
		.cgroup_id = options->scope.cgroup_id,
		.label_threads = options->label_threads,
		.own_tgid = getpid(),
		.max_live_each = options->max_live_each,
		.fork_copy = options->fork_copy,
		.frees_unknown = options->frees_unknown,
		.mappings = options->mappings,
	};
	object->bss->epochs.current = 1;
	bpf_map__set_max_entries(object->maps.live, options->max_live);
	if (options->label_threads) {
		bpf_map__set_max_entries(object->maps.thread_names, THREAD_NAMES_MAX);
		bpf_map__set_max_entries(object->maps.sites, MAX_SITES_OF_THREADS);
	}
	bpf_map__set_max_entries(object->maps.chunks, options->max_stacks);
	bpf_map__set_max_entries(object->maps.processes, options->max_processes);
	/* Also of those that have left, until they are taken note of. */
	bpf_map__set_max_entries(object->maps.process_infos, 2 * options->max_processes);
	if (options->fork_copy) {
		bpf_map__set_max_entries(object->maps.fork_kept, FORK_TABLE_SIZE);
		bpf_map__set_max_entries(object->maps.fork_frees, FORK_TABLE_SIZE);
	}
	kernel_choose_program(object->progs.fork_copy, options->fork_copy, 0);
	choose_programs(object, options->mode, options->probes);
	kernel_mappings_choose(object, options->record, options->mappings);
	choose_fault_programs(object, options->record == MODE_FAULTS);
	kernel_samplers_choose(object, options->record == MODE_SAMPLER, options->mode);
	err = heaptap_bpf__load(object);
	if (err)
		return err == -EINVAL || err == -EACCES ? -EOPNOTSUPP : err;

	kernel->ring = ring_buffer__new(bpf_map__fd(object->maps.events), event_note, kernel, NULL);
	kernel->throw_ring =
		ring_buffer__new(bpf_map__fd(object->maps.throw_events), event_ignore, NULL, NULL);
	if (!kernel->ring || !kernel->throw_ring)
		return -errno;
	kernel->programs = (struct attach_programs){
		.alloc_session = kernel_program_fd(object->progs.alloc_session),
		.realloc_session = kernel_program_fd(object->progs.realloc_session),
		.alloc_enter = kernel_program_fd(object->progs.alloc_enter),
		.alloc_return = kernel_program_fd(object->progs.alloc_return),
		.realloc_enter = kernel_program_fd(object->progs.realloc_enter),
		.realloc_return = kernel_program_fd(object->progs.realloc_return),
		.free_enter = kernel_program_fd(object->progs.free_enter),
		.throw_enter = kernel_program_fd(object->progs.throw_enter),
	};
	kernel_samplers_programs(object, &kernel->programs);
	*ret = take_ptr(kernel);
	return 0;
}

void kernel_close(struct kernel *kernel)
{
	if (!kernel)
		return;
	ring_buffer__free(kernel->ring);
	ring_buffer__free(kernel->throw_ring);
	kernel_mappings_close(kernel);
	heaptap_bpf__destroy(kernel->object);
	threads_free(kernel->threads);
	free(kernel);
}

const struct attach_programs *kernel_programs(const struct kernel *kernel)
{
	return &kernel->programs;
}

struct upload_maps kernel_upload_maps(const struct kernel *kernel)
{
	const struct heaptap_bpf *object = kernel->object;

	return (struct upload_maps){
		.images = bpf_map__fd(object->maps.unwind_images),
		.tables = bpf_map__fd(object->maps.unwind_tables),
		.rules = bpf_map__fd(object->maps.unwind_rules),
	};
}

__u32 kernel_image_flags(const struct kernel *kernel, __u32 image)
{
	__u32 flags = 0;

	bpf_map__lookup_elem(kernel->object->maps.unwind_images, &image, sizeof(image), &flags,
			     sizeof(flags), 0);
	return flags;
}

void kernel_ask_again(struct kernel *kernel, __u32 image)
{
	__u32 flags = 0;

	bpf_map__update_elem(kernel->object->maps.unwind_images, &image, sizeof(image), &flags,
			     sizeof(flags), 0);
}

struct copy_maps kernel_copy_maps(const struct kernel *kernel)
{
	const struct heaptap_bpf *object = kernel->object;

	return (struct copy_maps){
		.live = bpf_map__fd(object->maps.live),
		.kept = bpf_map__fd(object->maps.fork_kept),
		.frees = bpf_map__fd(object->maps.fork_frees),
		.processes = bpf_map__fd(object->maps.process_infos),
		.program = kernel_program_fd(object->progs.fork_copy),
		.live_filter = object->bss->live_filter,
		.batch = &object->bss->fork_batch,
		.clock = &object->bss->fork_clock,
		.due = &object->bss->copies_due,
		.epoch = &object->bss->epochs.current,
	};
}

struct fault_parts kernel_fault_parts(const struct kernel *kernel)
{
	const struct heaptap_bpf *object = kernel->object;

	return (struct fault_parts){
		.enter = kernel_program_fd(object->progs.fault_enter),
		.minor = kernel_program_fd(object->progs.fault_minor),
		.major = kernel_program_fd(object->progs.fault_major),
		.find = kernel_program_fd(object->progs.find_page_tables),
		.proof = &object->bss->page_proof,
		.tables = (volatile struct page_tables *)&object->bss->page_tables,
	};
}

int kernel_attach_lifecycle(struct kernel *kernel)
{
	struct heaptap_bpf *object = kernel->object;

	object->links.process_fork = bpf_program__attach(object->progs.process_fork);
	if (!object->links.process_fork)
		return -errno;
	object->links.process_exec = bpf_program__attach(object->progs.process_exec);
	if (!object->links.process_exec)
		return -errno;
	object->links.process_moved = bpf_program__attach(object->progs.process_moved);
	if (!object->links.process_moved)
		return -errno;
	object->links.process_exit = bpf_program__attach(object->progs.process_exit);
	if (!object->links.process_exit)
		return -errno;
	return 0;
}

static int add_nested(struct kernel *kernel, __u64 key, __u32 kind)
{
	const __u8 value = 1;
	int err = bpf_map__update_elem(kernel->object->maps.nested_calls, &key, sizeof(key), &value,
				       sizeof(value), BPF_ANY);

	if (!err)
		kernel->object->bss->nested_kinds |= kind;
	return err;
}

int kernel_add_nested_call(struct kernel *kernel, __u32 image, __u32 return_offset)
{
	return add_nested(kernel, nested_call_here(image, return_offset), NESTED_HERE);
}

int kernel_add_foreign_call(struct kernel *kernel, __u32 image_id, __u32 return_offset)
{
	return add_nested(kernel, (__u64)image_id << FRAME_OFFSET_BITS | return_offset,
			  NESTED_FOREIGN);
}

int kernel_add_process(struct kernel *kernel, pid_t pid, const char *comm, __u64 cgroup_id,
		       bool held)
{
	struct heaptap_bpf *object = kernel->object;
	__u32 key = pid,
	      serial = __atomic_add_fetch(&object->bss->last_serial, 1, __ATOMIC_SEQ_CST);
	struct process_record record = {.serial = serial, .held = held};
	struct process_info info = {
		.tgid = pid,
		.inner_tgid = process_inner_pid(pid),
		.start_ns = clock_ns(CLOCK_MONOTONIC),
		.executed = held,
		.cgroup_id = cgroup_id,
	};
	int err;

	snprintf(info.comm, sizeof(info.comm), "%s", comm);
	err = bpf_map__update_elem(object->maps.process_infos, &serial, sizeof(serial), &info,
				   sizeof(info), BPF_ANY);
	if (err)
		return err;
	err = bpf_map__update_elem(object->maps.processes, &key, sizeof(key), &record,
				   sizeof(record), BPF_NOEXIST);
	if (err) {
		bpf_map__delete_elem(object->maps.process_infos, &serial, sizeof(serial), 0);
		return err == -EEXIST ? 0 : err;
	}
	__atomic_fetch_add(&object->bss->process_count, 1, __ATOMIC_SEQ_CST);
	return 0;
}

bool kernel_has_process(const struct kernel *kernel, pid_t pid)
{
	struct process_record record;
	__u32 key = pid;

	return !bpf_map__lookup_elem(kernel->object->maps.processes, &key, sizeof(key), &record,
				     sizeof(record), 0);
}

int kernel_drop_process(struct kernel *kernel, pid_t pid)
{
	__u32 key = pid;

	/* A program may have done so at its exit. */
	if (bpf_map__delete_elem(kernel->object->maps.processes, &key, sizeof(key), 0))
		return -ESRCH;
	__atomic_fetch_sub(&kernel->object->bss->process_count, 1, __ATOMIC_SEQ_CST);
	return 0;
}

size_t kernel_process_count(const struct kernel *kernel)
{
	return __atomic_load_n(&kernel->object->bss->process_count, __ATOMIC_SEQ_CST);
}

size_t kernel_child_count(const struct kernel *kernel)
{
	return __atomic_load_n(&kernel->object->bss->child_count, __ATOMIC_RELAXED);
}

int kernel_read_calls(const struct kernel *kernel, struct call_counts *ret)
{
	return kernel_maps_sum(bpf_map__fd(kernel->object->maps.calls), 0, kernel->cpu_count,
			       (__u64 *)ret, sizeof(*ret) / sizeof(__u64));
}

void kernel_set_generation(struct kernel *kernel, unsigned int generation)
{
	__atomic_store_n(&kernel->object->bss->generation, generation, __ATOMIC_SEQ_CST);
}

int kernel_read_processes(const struct kernel *kernel,
			  int (*seen)(void *arg, __u32 serial, const struct process_info *info),
			  void *arg)
{
	return kernel_maps_processes(bpf_map__fd(kernel->object->maps.process_infos), seen, arg);
}

int kernel_purge(struct kernel *kernel, bool (*gone)(void *arg, __u32 serial), void *arg)
{
	struct heaptap_bpf *object = kernel->object;
	__u64 bytes = 0;
	int err = kernel_maps_purge(bpf_map__fd(object->maps.live), object->bss->live_filter, gone,
				    arg, &bytes);

	__atomic_fetch_add(&object->bss->epochs.totals.gone_bytes, bytes, __ATOMIC_SEQ_CST);
	return err;
}

void kernel_forget_process(struct kernel *kernel, __u32 serial)
{
	bpf_map__delete_elem(kernel->object->maps.process_infos, &serial, sizeof(serial), 0);
}

void kernel_set_active(struct kernel *kernel, bool active)
{
	__atomic_store_n(&kernel->object->bss->epochs.active, active, __ATOMIC_SEQ_CST);
}

int kernel_event_fd(const struct kernel *kernel)
{
	return ring_buffer__epoll_fd(kernel->ring);
}

struct throw_request *kernel_throws(struct kernel *kernel)
{
	return kernel->object->bss->throws;
}

int kernel_throw_fd(const struct kernel *kernel)
{
	return ring_buffer__epoll_fd(kernel->throw_ring);
}

int kernel_consume_throws(struct kernel *kernel)
{
	int err = ring_buffer__consume(kernel->throw_ring);

	return err < 0 ? err : 0;
}

int kernel_consume_events(struct kernel *kernel, __u32 *ret_types)
{
	int err = ring_buffer__consume(kernel->ring);

	*ret_types = kernel->event_types;
	kernel->event_types = 0;
	return err < 0 ? err : 0;
}

const struct threads *kernel_threads(const struct kernel *kernel)
{
	return kernel->threads;
}

int kernel_read_chunk(struct kernel *kernel, __u64 id, struct stack_chunk *ret)
{
	return bpf_map__lookup_elem(kernel->object->maps.chunks, &id, sizeof(id), ret, sizeof(*ret),
				    0);
}

/* Their ids are made of the serial, so no other process ever comes to them. */
void kernel_forget_stack(struct kernel *kernel, __u64 id)
{
	struct stack_chunk chunk;

	/* The parents of one that is deleted are deleted. */
	while (id != STACK_ID_LOST && !kernel_read_chunk(kernel, id, &chunk) && chunk.serial) {
		bpf_map__delete_elem(kernel->object->maps.chunks, &id, sizeof(id), 0);
		id = chunk.parent;
	}
}

int kernel_read_images(struct kernel *kernel,
		       int (*seen)(void *arg, const struct image_sight *sight), void *arg)
{
	int map = bpf_map__fd(kernel->object->maps.images), err;
	struct image_key key, *previous = NULL;
	struct image_sight sight;

	/* Images are only ever added: the walk meets all that were there when it began. */
	while (!bpf_map_get_next_key(map, previous, &key)) {
		previous = &key;
		if (bpf_map_lookup_elem(map, &key, &sight))
			continue;
		err = seen(arg, &sight);
		if (err)
			return err;
	}
	return 0;
}

void kernel_note_loss(struct kernel *kernel, enum loss loss, __u64 count)
{
	kernel->noted_losses[loss] += count;
}

int kernel_read_losses(struct kernel *kernel, struct loss_counter ret[LOSS_COUNT])
{
	int err = 0;

	for (__u32 loss = 0; loss < LOSS_COUNT && !err; loss++) {
		err = kernel_maps_sum(bpf_map__fd(kernel->object->maps.losses), loss,
				      kernel->cpu_count, (__u64 *)&ret[loss],
				      sizeof(ret[loss]) / sizeof(__u64));
		ret[loss].count += kernel->noted_losses[loss];
	}
	ret[LOSS_MAPPING_MISSED].count += kernel_mappings_missed(kernel);
	ret[LOSS_EPOCH_LATE].count += kernel->merged_epochs;
	return err;
}
