/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Another tool: puts a return probe on one instruction of a file, in one process, by the perf
 * interface, and keeps it until its standard input ends. Then it prints how often it was hit.
 *
 * Usage: uret PID FILE OFFSET
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In /sys/bus/event_source/devices/uprobe/format/retprobe: "config:0". */
#define RETURN_PROBE 1

static int probe_type(void)
{
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type = -1;

	if (!file || fscanf(file, "%d", &type) != 1)
		type = -1;
	if (file)
		fclose(file);
	return type;
}

int main(int argc, char **argv)
{
	struct perf_event_attr attr = {.size = sizeof(attr), .config = RETURN_PROBE, .inherit = 1};
	uint64_t hits = 0;
	char byte;
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: uret PID FILE OFFSET\n");
		return 2;
	}
	attr.type = probe_type();
	attr.config1 = (uintptr_t)argv[2];
	attr.config2 = strtoull(argv[3], NULL, 0);
	fd = syscall(SYS_perf_event_open, &attr, atoi(argv[1]), -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "uret: %s\n", strerror(errno));
		return 1;
	}
	printf("attached\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	if (read(fd, &hits, sizeof(hits)) != sizeof(hits))
		return 1;
	printf("hits=%llu\n", (unsigned long long)hits);
	return 0;
}
