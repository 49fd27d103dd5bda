/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From linux/bpf.h of 6.13; Debian 12's headers are older. */
#define TRACE_UPROBE_MULTI	 48
#define TRACE_UPROBE_SESSION	 57
#define UPROBE_MULTI_FLAG_RETURN 1u

/* The members of union bpf_attr that BPF_LINK_CREATE reads for a uprobe_multi link. */
struct uprobe_multi_attr {
	__u32 prog_fd;
	__u32 target_fd;
	__u32 attach_type;
	__u32 flags;
	__u64 path;
	__u64 offsets;
	__u64 ref_ctr_offsets;
	__u64 cookies;
	__u32 count;
	__u32 multi_flags;
	__u32 pid;
	__u32 pad;
};

struct attach {
	enum attach_mode mode;
	struct attach_programs programs;
	pid_t pid;
	int *fds;
	size_t count;
	size_t capacity;
};

const char *attach_mode_name(enum attach_mode mode)
{
	switch (mode) {
	case ATTACH_AUTO:
		return "auto";
	case ATTACH_SESSION:
		return "session";
	case ATTACH_MULTI:
		return "multi";
	case ATTACH_PERF:
		return "perf";
	}
	return "?";
}

static int sys_bpf(int cmd, void *attr, unsigned int size)
{
	int fd = syscall(SYS_bpf, cmd, attr, size);

	return fd < 0 ? -errno : fd;
}

static int link_multi(int program, int type, const char *path, const uint64_t *offsets,
		      const uint64_t *cookies, size_t count, bool at_return, pid_t pid)
{
	struct uprobe_multi_attr attr = {
		.prog_fd = program,
		.attach_type = type,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.count = count,
		.multi_flags = at_return ? UPROBE_MULTI_FLAG_RETURN : 0,
		.pid = pid,
	};

	return sys_bpf(BPF_LINK_CREATE, &attr, sizeof(attr));
}

/*
 * Whether a link of this type can be made at all. The link names no file: a kernel that knows the
 * type says EBADF or ENOENT or so, one that does not says EINVAL already when it loads the program
 * or reads the attributes.
 */
static bool has_multi(int type)
{
	const struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = type);
	_cleanup_close_ int program = -1;
	uint64_t offset = 0, cookie = 0;
	int link;

	program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "heaptap_try", "GPL", code, ARRAY_SIZE(code),
				&opts);
	if (program < 0)
		return false;
	/* Our own executable's first byte, mapped but never run. */
	link = link_multi(program, type, "/proc/self/exe", &offset, &cookie, 1, false, getpid());
	if (link < 0)
		return false;
	close(link);
	return true;
}

static int perf_uprobe_type(void)
{
	_cleanup_fclose_ FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type;

	if (!file || fscanf(file, "%d", &type) != 1)
		return -EOPNOTSUPP;
	return type;
}

bool attach_has_mode(enum attach_mode mode)
{
	switch (mode) {
	case ATTACH_AUTO:
		break;
	case ATTACH_SESSION:
		return has_multi(TRACE_UPROBE_SESSION);
	case ATTACH_MULTI:
		return has_multi(TRACE_UPROBE_MULTI);
	case ATTACH_PERF:
		return perf_uprobe_type() >= 0;
	}
	return false;
}

int attach_probe_mode(enum attach_mode *ret)
{
	for (enum attach_mode mode = ATTACH_SESSION; mode <= ATTACH_PERF; mode++) {
		if (attach_has_mode(mode)) {
			*ret = mode;
			return 0;
		}
	}
	return -EOPNOTSUPP;
}

int attach_new(enum attach_mode mode, const struct attach_programs *programs, pid_t pid,
	       struct attach **ret)
{
	struct attach *attach = calloc(1, sizeof(*attach));

	if (!attach)
		return -ENOMEM;
	attach->mode = mode;
	attach->programs = *programs;
	attach->pid = pid;
	*ret = attach;
	return 0;
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	for (size_t i = 0; i < attach->count; i++)
		close(attach->fds[i]);
	free(attach->fds);
	free(attach);
}

static int keep_fd(struct attach *attach, int fd)
{
	if (attach->count == attach->capacity) {
		size_t capacity = attach->capacity ? attach->capacity * 2 : 16;
		int *fds = reallocarray(attach->fds, capacity, sizeof(*fds));

		if (!fds) {
			close(fd);
			return -ENOMEM;
		}
		attach->fds = fds;
		attach->capacity = capacity;
	}
	attach->fds[attach->count++] = fd;
	return 0;
}

/* One perf event and the link that runs the program on it. */
static int attach_perf(struct attach *attach, int program, const char *path, uint64_t offset,
		       uint64_t cookie, bool at_return)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.config = at_return, /* bit 0: return probe */
		.config1 = (uintptr_t)path,
		.config2 = offset,
	};
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = cookie);
	int type = perf_uprobe_type(), event, link, err;

	if (type < 0)
		return type;
	attr.type = type;
	/* A uprobe of no process in particular hits on every CPU, whichever is named. */
	event = syscall(SYS_perf_event_open, &attr, attach->pid ? attach->pid : -1,
			attach->pid ? -1 : 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	err = keep_fd(attach, event);
	if (err)
		return err;
	link = bpf_link_create(program, event, BPF_PERF_EVENT, &opts);
	if (link < 0)
		return -errno;
	return keep_fd(attach, link);
}

/* type: of the loaded program, outside of ATTACH_PERF. */
static int attach_at(struct attach *attach, int program, int type, const char *path,
		     const uint64_t *offsets, const uint64_t *cookies, size_t count, bool at_return)
{
	int fd, err;

	if (!count)
		return 0;
	if (attach->mode == ATTACH_PERF) {
		for (size_t i = 0; i < count; i++) {
			err = attach_perf(attach, program, path, offsets[i], cookies[i], at_return);
			if (err)
				return err;
		}
		return 0;
	}
	fd = link_multi(program, type, path, offsets, cookies, count, at_return, attach->pid);
	return fd < 0 ? fd : keep_fd(attach, fd);
}

/* Attaches one program to all points for which it is meant. */
static int attach_program(struct attach *attach, int program, const char *path, bool at_return,
			  const struct module_points *points,
			  bool (*wanted)(const struct probe_point *point))
{
	_cleanup_free_ uint64_t *offsets = calloc(points->count, sizeof(*offsets));
	_cleanup_free_ uint64_t *cookies = calloc(points->count, sizeof(*cookies));
	size_t count = 0;

	if (!offsets || !cookies)
		return -ENOMEM;
	for (size_t i = 0; i < points->count; i++) {
		if (!wanted(&points->entries[i]))
			continue;
		offsets[count] = points->entries[i].spec.offset;
		cookies[count++] = probe_cookie(&points->entries[i].spec);
	}
	/* A free never returns to us, also in session mode. */
	return attach_at(attach, program,
			 program == attach->programs.alloc_session ||
					 program == attach->programs.realloc_session
				 ? TRACE_UPROBE_SESSION
				 : TRACE_UPROBE_MULTI,
			 path, offsets, cookies, count, at_return);
}

static bool is_free(const struct probe_point *point)
{
	return point->spec.kind == PROBE_FREE;
}

static bool is_realloc(const struct probe_point *point)
{
	return point->spec.kind == PROBE_REALLOC || point->spec.kind == PROBE_REALLOCARRAY ||
	       point->spec.kind == PROBE_RESIZE;
}

static bool is_alloc(const struct probe_point *point)
{
	return !is_free(point) && !is_realloc(point);
}

static bool is_returning_alloc(const struct probe_point *point)
{
	return is_alloc(point) && !(point->spec.flags & PROBE_ENTRY_ONLY);
}

int attach_points(struct attach *attach, int fd, const struct module_points *points)
{
	const struct attach_programs *programs = &attach->programs;
	char path[64];
	int err;

	/* The descriptor names the file whatever its path is, or was, in whatever mount namespace.
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = attach_program(attach, programs->free_enter, path, false, points, is_free);
	if (attach->mode == ATTACH_SESSION) {
		if (!err)
			err = attach_program(attach, programs->realloc_session, path, false, points,
					     is_realloc);
		if (!err)
			err = attach_program(attach, programs->alloc_session, path, false, points,
					     is_alloc);
		return err;
	}
	/* Returns before entries: an entry that is seen has its return seen too. */
	if (!err)
		err = attach_program(attach, programs->realloc_return, path, true, points,
				     is_realloc);
	if (!err)
		err = attach_program(attach, programs->realloc_enter, path, false, points,
				     is_realloc);
	if (!err)
		err = attach_program(attach, programs->alloc_return, path, true, points,
				     is_returning_alloc);
	if (!err)
		err = attach_program(attach, programs->alloc_enter, path, false, points, is_alloc);
	return err;
}

static bool any_point(const struct probe_point *point)
{
	return true;
}

int attach_throw(struct attach *attach, int fd, uint64_t offset)
{
	struct probe_point point = {.spec.offset = offset};
	const struct module_points points = {.entries = &point, .count = 1};
	char path[64];

	if (offset > UINT32_MAX)
		return -E2BIG;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return attach_program(attach, attach->programs.throw_enter, path, false, &points,
			      any_point);
}

int attach_entry_type(enum attach_mode mode)
{
	return mode == ATTACH_PERF ? 0 : TRACE_UPROBE_MULTI;
}

int attach_offsets(struct attach *attach, int fd, int program, const uint64_t *offsets,
		   const uint64_t *cookies, size_t count, bool at_return)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return attach_at(attach, program, attach_entry_type(attach->mode), path, offsets, cookies,
			 count, at_return);
}
