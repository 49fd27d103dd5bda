/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints `NAME INSTRUCTIONS` for every BPF program in the kernel: how many instructions the
 * verifier went through. Old bpftools do not show that. One program per line; none is no error.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sys_bpf(int cmd, union bpf_attr *attr)
{
	return syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

int main(void)
{
	uint32_t id = 0;

	for (;;) {
		struct bpf_prog_info info = {0};
		union bpf_attr attr;
		int fd;

		memset(&attr, 0, sizeof(attr));
		attr.start_id = id;
		if (sys_bpf(BPF_PROG_GET_NEXT_ID, &attr))
			break;
		id = attr.next_id;

		memset(&attr, 0, sizeof(attr));
		attr.prog_id = id;
		fd = sys_bpf(BPF_PROG_GET_FD_BY_ID, &attr);
		if (fd < 0)
			continue; /* gone in between */
		memset(&attr, 0, sizeof(attr));
		attr.info.bpf_fd = fd;
		attr.info.info_len = sizeof(info);
		attr.info.info = (uintptr_t)&info;
		if (sys_bpf(BPF_OBJ_GET_INFO_BY_FD, &attr)) {
			perror("BPF_OBJ_GET_INFO_BY_FD");
			return 1;
		}
		close(fd);
		printf("%s %u\n", info.name, info.verified_insns);
	}
	if (errno != ENOENT) {
		perror("BPF_PROG_GET_NEXT_ID");
		return 1;
	}
	return 0;
}
