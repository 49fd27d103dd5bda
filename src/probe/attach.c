/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
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

/* A program at some offsets of a file: what links are made of, once and again. */
struct attachment {
	int fd;
	int program;
	int type; /* of the loaded program, outside of ATTACH_PERF */
	bool at_return;
	size_t count;
	uint64_t *offsets;
	uint64_t *cookies;
	uint64_t *semaphores; /* NULL: none has one */
};

/* The links of all attachments to one process, or to all of them. */
struct reach {
	pid_t pid; /* 0: whoever runs into them */
	int *fds;
	size_t count;
	size_t capacity;
};

/* Those that are there at a time, but for the moments of a replacement. */
struct reaches {
	struct reach *entries;
	size_t count;
	unsigned int generation;
};

struct attach {
	enum attach_mode mode;
	struct attach_programs programs;
	struct attachment *attachments;
	size_t attachment_count;
	struct reaches now;
	struct reaches old; /* until attach_settle() */
	bool expects_others;
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
		      const uint64_t *cookies, const uint64_t *semaphores, size_t count,
		      bool at_return, pid_t pid)
{
	struct uprobe_multi_attr attr = {
		.prog_fd = program,
		.attach_type = type,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.ref_ctr_offsets = (uintptr_t)semaphores,
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
	link = link_multi(program, type, "/proc/self/exe", &offset, &cookie, NULL, 1, false,
			  getpid());
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

int attach_new(enum attach_mode mode, const struct attach_programs *programs, const pid_t *pids,
	       size_t count, struct attach **ret)
{
	struct attach *attach CLEANUP(attach) = calloc(1, sizeof(*attach));
	int err = 0;

	if (!attach)
		return -ENOMEM;
	attach->mode = mode;
	attach->programs = *programs;
	for (size_t i = 0; i < count && !err; i++)
		err = attach_add(attach, pids[i]);
	if (!err)
		*ret = take_ptr(attach);
	return err;
}

static void reach_fini(struct reach *reach)
{
	for (size_t i = 0; i < reach->count; i++)
		close(reach->fds[i]);
	free(reach->fds);
}

static void reaches_fini(struct reaches *reaches)
{
	for (size_t i = 0; i < reaches->count; i++)
		reach_fini(&reaches->entries[i]);
	free(reaches->entries);
	*reaches = (struct reaches){};
}

static void attachment_fini(struct attachment *attachment)
{
	if (attachment->fd >= 0)
		close(attachment->fd);
	free(attachment->offsets);
	free(attachment->cookies);
	free(attachment->semaphores);
}

void attach_free(struct attach *attach)
{
	if (!attach)
		return;
	reaches_fini(&attach->old);
	reaches_fini(&attach->now);
	for (size_t i = 0; i < attach->attachment_count; i++)
		attachment_fini(&attach->attachments[i]);
	free(attach->attachments);
	free(attach);
}

static int keep_fd(struct reach *reach, int fd)
{
	if (reach->count == reach->capacity) {
		size_t capacity = reach->capacity ? reach->capacity * 2 : 16;
		int *fds = reallocarray(reach->fds, capacity, sizeof(*fds));

		if (!fds) {
			close(fd);
			return -ENOMEM;
		}
		reach->fds = fds;
		reach->capacity = capacity;
	}
	reach->fds[reach->count++] = fd;
	return 0;
}

/* One perf event and the link that runs the program on it. */
static int link_perf(struct reach *reach, int program, const char *path, uint64_t offset,
		     uint64_t cookie, uint64_t semaphore, bool at_return)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		/* Bit 0: return probe. See format/ref_ctr_offset of the event source. */
		.config = at_return | semaphore << 32,
		.config1 = (uintptr_t)path,
		.config2 = offset,
	};
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = cookie);
	int type = perf_uprobe_type(), event, link, err;

	if (type < 0)
		return type;
	if (semaphore >> 32)
		return -E2BIG;
	attr.type = type;
	/* A uprobe of no process in particular hits on every CPU, whichever is named. */
	event = syscall(SYS_perf_event_open, &attr, reach->pid ? reach->pid : -1,
			reach->pid ? -1 : 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	err = keep_fd(reach, event);
	if (err)
		return err;
	link = bpf_link_create(program, event, BPF_PERF_EVENT, &opts);
	if (link < 0)
		return -errno;
	return keep_fd(reach, link);
}

static int link_attachment(const struct attach *attach, const struct attachment *attachment,
			   struct reach *reach, unsigned int generation)
{
	_cleanup_free_ uint64_t *cookies = calloc(attachment->count, sizeof(*cookies));
	char path[64];
	int fd, err;

	if (!cookies)
		return -ENOMEM;
	for (size_t i = 0; i < attachment->count; i++)
		cookies[i] = attachment->cookies[i] | (uint64_t)generation
							      << PROBE_GENERATION_SHIFT;
	/* The descriptor names the file whatever its path is, or was, in whatever mount namespace.
	 */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", attachment->fd);
	if (attach->mode == ATTACH_PERF) {
		for (size_t i = 0; i < attachment->count; i++) {
			err = link_perf(reach, attachment->program, path, attachment->offsets[i],
					cookies[i],
					attachment->semaphores ? attachment->semaphores[i] : 0,
					attachment->at_return);
			if (err)
				return err;
		}
		return 0;
	}
	fd = link_multi(attachment->program, attachment->type, path, attachment->offsets, cookies,
			attachment->semaphores, attachment->count, attachment->at_return,
			reach->pid);
	return fd < 0 ? fd : keep_fd(reach, fd);
}

/* Links a process, or all, to everything that is attached. */
static int link_reach(const struct attach *attach, struct reaches *reaches, pid_t pid)
{
	struct reach *entries =
		reallocarray(reaches->entries, reaches->count + 1, sizeof(*entries));
	struct reach reach = {.pid = pid};
	int err = 0;

	if (!entries)
		return -ENOMEM;
	reaches->entries = entries;
	for (size_t i = 0; i < attach->attachment_count && !err; i++)
		err = link_attachment(attach, &attach->attachments[i], &reach, reaches->generation);
	if (err)
		reach_fini(&reach);
	else
		entries[reaches->count++] = reach;
	return err;
}

void attach_expect_others(struct attach *attach)
{
	attach->expects_others = true;
}

int attach_add(struct attach *attach, pid_t pid)
{
	return link_reach(attach, &attach->now, pid);
}

void attach_remove(struct attach *attach, pid_t pid)
{
	struct reaches *reaches = &attach->now;

	for (size_t i = 0; i < reaches->count; i++) {
		if (reaches->entries[i].pid != pid)
			continue;
		reach_fini(&reaches->entries[i]);
		reaches->entries[i] = reaches->entries[--reaches->count];
		return;
	}
}

bool attach_reaches(const struct attach *attach, pid_t pid)
{
	for (size_t i = 0; i < attach->now.count; i++)
		if (!attach->now.entries[i].pid || attach->now.entries[i].pid == pid)
			return true;
	return false;
}

int attach_replace(struct attach *attach, const pid_t *pids, size_t count,
		   unsigned int *ret_generation)
{
	struct reaches next = {.generation = (attach->now.generation + 1) % PROBE_GENERATIONS};
	int err = 0;

	attach_settle(attach);
	for (size_t i = 0; i < count && !err; i++) {
		err = link_reach(attach, &next, pids[i]);
		/* It is gone. */
		if (err == -ESRCH)
			err = 0;
	}
	if (err) {
		reaches_fini(&next);
		return err;
	}
	attach->old = attach->now;
	attach->now = next;
	*ret_generation = next.generation;
	return 0;
}

void attach_settle(struct attach *attach)
{
	reaches_fini(&attach->old);
}

/* Keeps a attachment. Its arrays are copied. */
static int add_attachment(struct attach *attach, const struct attachment *attachment)
{
	struct attachment *attachments = reallocarray(
		attach->attachments, attach->attachment_count + 1, sizeof(*attachments));
	struct attachment copy = *attachment;

	if (!attachments)
		return -ENOMEM;
	attach->attachments = attachments;
	copy.semaphores = NULL;
	copy.fd = fcntl(attachment->fd, F_DUPFD_CLOEXEC, 0);
	copy.offsets = calloc(attachment->count, sizeof(*copy.offsets));
	copy.cookies = calloc(attachment->count, sizeof(*copy.cookies));
	if (attachment->semaphores)
		copy.semaphores = calloc(attachment->count, sizeof(*copy.semaphores));
	if (copy.fd < 0 || !copy.offsets || !copy.cookies ||
	    !copy.semaphores != !attachment->semaphores) {
		int err = copy.fd < 0 ? -errno : -ENOMEM;

		attachment_fini(&copy);
		return err;
	}
	memcpy(copy.offsets, attachment->offsets, attachment->count * sizeof(*copy.offsets));
	memcpy(copy.cookies, attachment->cookies, attachment->count * sizeof(*copy.cookies));
	if (copy.semaphores)
		memcpy(copy.semaphores, attachment->semaphores,
		       attachment->count * sizeof(*copy.semaphores));
	attachments[attach->attachment_count++] = copy;
	return 0;
}

static int attach_all(struct attach *attach, const struct attachment *attachment)
{
	int err;

	if (!attachment->count)
		return 0;
	err = add_attachment(attach, attachment);
	for (size_t i = 0; i < attach->now.count && !err; i++) {
		struct reach *reach = &attach->now.entries[i];

		err = link_attachment(attach, attachment, reach, attach->now.generation);
		if (err == -ESRCH && attach->expects_others)
			err = 0;
	}
	return err;
}

/* Attaches one program to all points for which it is meant. */
static int attach_program(struct attach *attach, int program, int fd, bool at_return,
			  const struct module_points *points,
			  bool (*wanted)(const struct probe_point *point))
{
	_cleanup_free_ uint64_t *offsets = calloc(points->count, sizeof(*offsets));
	_cleanup_free_ uint64_t *cookies = calloc(points->count, sizeof(*cookies));
	struct attachment attachment = {
		.fd = fd,
		.program = program,
		/* A free never returns to us, also in session mode. */
		.type = program == attach->programs.alloc_session ||
					program == attach->programs.realloc_session
				? TRACE_UPROBE_SESSION
				: TRACE_UPROBE_MULTI,
		.at_return = at_return,
		.offsets = offsets,
		.cookies = cookies,
	};

	if (!offsets || !cookies)
		return -ENOMEM;
	for (size_t i = 0; i < points->count; i++) {
		if (!wanted(&points->entries[i]))
			continue;
		offsets[attachment.count] = points->entries[i].spec.offset;
		cookies[attachment.count++] = probe_cookie(&points->entries[i].spec);
	}
	return attach_all(attach, &attachment);
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
	int err;

	err = attach_program(attach, programs->free_enter, fd, false, points, is_free);
	if (attach->mode == ATTACH_SESSION) {
		if (!err)
			err = attach_program(attach, programs->realloc_session, fd, false, points,
					     is_realloc);
		if (!err)
			err = attach_program(attach, programs->alloc_session, fd, false, points,
					     is_alloc);
		return err;
	}
	/* Returns before entries: an entry that is seen has its return seen too. */
	if (!err)
		err = attach_program(attach, programs->realloc_return, fd, true, points,
				     is_realloc);
	if (!err)
		err = attach_program(attach, programs->realloc_enter, fd, false, points,
				     is_realloc);
	if (!err)
		err = attach_program(attach, programs->alloc_return, fd, true, points,
				     is_returning_alloc);
	if (!err)
		err = attach_program(attach, programs->alloc_enter, fd, false, points, is_alloc);
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

	if (offset > UINT32_MAX)
		return -E2BIG;
	return attach_program(attach, attach->programs.throw_enter, fd, false, &points, any_point);
}

int attach_entry_type(enum attach_mode mode)
{
	return mode == ATTACH_PERF ? 0 : TRACE_UPROBE_MULTI;
}

int attach_session_type(void)
{
	return TRACE_UPROBE_SESSION;
}

int attach_places(struct attach *attach, const struct attach_places *places)
{
	const struct attachment attachment = {
		.fd = places->fd,
		.program = places->program,
		.type = places->session ? TRACE_UPROBE_SESSION : attach_entry_type(attach->mode),
		.at_return = places->at_return,
		.count = places->count,
		.offsets = (uint64_t *)places->offsets,
		.cookies = (uint64_t *)places->cookies,
		.semaphores = (uint64_t *)places->semaphores,
	};

	return attach_all(attach, &attachment);
}

int attach_offsets(struct attach *attach, int fd, int program, const uint64_t *offsets,
		   const uint64_t *cookies, size_t count, bool at_return)
{
	const struct attach_places places = {
		.fd = fd,
		.program = program,
		.at_return = at_return,
		.count = count,
		.offsets = offsets,
		.cookies = cookies,
	};

	return attach_places(attach, &places);
}
