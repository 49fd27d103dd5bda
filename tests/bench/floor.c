/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Attaches empty BPF programs to a process: `floor PID ALLOC_FILE:OFFSET FREE_FILE:OFFSET`. Offsets
 * are file offsets. Prints the mode and `ready`, and detaches at the end of its stdin.
 */
#include <errno.h>
#include <limits.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

/* enum bpf_attach_type of Linux 6.6 and 6.13, which the headers of libbpf 1.1 do not have. */
#define UPROBE_MULTI   48
#define UPROBE_SESSION 57

#define MULTI_RETURN (1u << 0)

/* The part of union bpf_attr that BPF_LINK_CREATE reads for uprobe_multi. */
struct link_create {
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

struct point {
	char path[PATH_MAX];
	unsigned long offset;
};

static int parse_point(const char *text, struct point *ret)
{
	const char *colon = strrchr(text, ':');
	char *end;

	if (!colon || (size_t)(colon - text) >= sizeof(ret->path))
		return -EINVAL;
	memcpy(ret->path, text, colon - text);
	ret->path[colon - text] = '\0';
	ret->offset = strtoul(colon + 1, &end, 0);
	return *end || end == colon + 1 ? -EINVAL : 0;
}

static int link_multi(int prog_fd, __u32 attach_type, __u32 multi_flags, int pid,
		      const struct point *point)
{
	struct link_create attr = {
		.prog_fd = prog_fd,
		.attach_type = attach_type,
		.path = (uintptr_t)point->path,
		.offsets = (uintptr_t)&point->offset,
		.count = 1,
		.multi_flags = multi_flags,
		.pid = pid,
	};
	long fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : (int)fd;
}

static int load(const char *path, __u32 alloc_type, struct bpf_object **ret)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	int err = libbpf_get_error(object);

	if (err)
		return err;
	bpf_program__set_expected_attach_type(
		bpf_object__find_program_by_name(object, "floor_alloc"),
		(enum bpf_attach_type)alloc_type);
	bpf_program__set_expected_attach_type(
		bpf_object__find_program_by_name(object, "floor_free"),
		(enum bpf_attach_type)UPROBE_MULTI);
	err = bpf_object__load(object);
	if (err) {
		bpf_object__close(object);
		return err;
	}
	*ret = object;
	return 0;
}

static int program_fd(const struct bpf_object *object, const char *name)
{
	return bpf_program__fd(bpf_object__find_program_by_name(object, name));
}

/* One trap for the allocation: the kernel's best. */
static int attach_session(const char *path, int pid, const struct point *alloc,
			  const struct point *release)
{
	struct bpf_object *object;
	int err = load(path, UPROBE_SESSION, &object);

	if (err)
		return err;
	err = link_multi(program_fd(object, "floor_alloc"), UPROBE_SESSION, 0, pid, alloc);
	if (err < 0)
		return err;
	return link_multi(program_fd(object, "floor_free"), UPROBE_MULTI, 0, pid, release);
}

/* Two: entry and return. */
static int attach_multi(const char *path, int pid, const struct point *alloc,
			const struct point *release)
{
	struct bpf_object *object;
	int err = load(path, UPROBE_MULTI, &object);

	if (err)
		return err;
	err = link_multi(program_fd(object, "floor_alloc"), UPROBE_MULTI, 0, pid, alloc);
	if (err < 0)
		return err;
	err = link_multi(program_fd(object, "floor_alloc"), UPROBE_MULTI, MULTI_RETURN, pid, alloc);
	if (err < 0)
		return err;
	return link_multi(program_fd(object, "floor_free"), UPROBE_MULTI, 0, pid, release);
}

static int ignore_libbpf(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

int main(int argc, char **argv)
{
	static struct point alloc, release;
	char path[PATH_MAX + sizeof(".bpf.o")];
	const char *mode = "session";
	ssize_t length;
	int pid, err;
	char byte;

	if (argc != 4 || parse_point(argv[2], &alloc) || parse_point(argv[3], &release)) {
		fprintf(stderr, "usage: floor PID ALLOC_FILE:OFFSET FREE_FILE:OFFSET\n");
		return 2;
	}
	pid = atoi(argv[1]);
	/* The object lies beside the program, as floor.bpf.o. */
	length = readlink("/proc/self/exe", path, PATH_MAX);
	if (length < 0)
		return 1;
	strcpy(path + length, ".bpf.o");
	libbpf_set_print(ignore_libbpf);
	err = attach_session(path, pid, &alloc, &release);
	if (err < 0) {
		mode = "multi";
		err = attach_multi(path, pid, &alloc, &release);
	}
	if (err < 0) {
		fprintf(stderr, "floor: attach to %d: %s\n", pid, strerror(-err));
		return 1;
	}
	printf("%s\nready\n", mode);
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) == 1)
		;
	return 0;
}
