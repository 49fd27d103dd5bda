/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Another judge of probe points: runs a command with uprobes of the perf interface on instructions
 * of a file, in its first thread, and prints for each how often it was hit and with what in the
 * registers. These events cannot be inherited: the kernel would read the file's name again from the
 * memory of the command, and fail its fork() or clone(). It takes some 80 ms to remove each.
 *
 * Usage: hits FILE COMMAND [ARGUMENT...] < POINTS
 *
 * A point is a line "OFFSET REGISTERS": a file offset and up to three register numbers of the
 * instruction encoding, or "-" for none, with commas between. The answer to each is a line
 *	hits=N nonzero=N sums=N,N,N mix=N nonzero_mix=N
 * with the sums of the registers, modulo 2^64, and a mix of them and of the stack pointer that
 *tells which came together; "nonzero" counts hits whose first register is not 0.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGISTER_COUNT 16
#define POINT_MAX      8192
#define RING_PAGES     2048 /* 8 MiB */
#define PAGE	       4096
#define RSP	       4
#define NONE	       0xff

struct point {
	uint64_t offset;
	uint8_t registers[3];
	int fd;	     /* the event */
	uint64_t id; /* by which the kernel names it in samples */
	uint64_t hits, nonzero, sums[3], mix, nonzero_mix;
};

struct sample {
	struct perf_event_header header;
	uint64_t id;
	uint64_t abi;
	uint64_t registers[REGISTER_COUNT];
};

/* asm/perf_regs.h counts ax bx cx dx si di bp sp ip flags segments(6) r8 to r15. */
#define SAMPLE_REGISTERS 0xff00ffull
static const uint8_t sample_index[REGISTER_COUNT] = {0, 2, 3,  1,  7,  6,  4,  5,
						     8, 9, 10, 11, 12, 13, 14, 15};

static struct point points[POINT_MAX];
static size_t point_count;
static uint64_t lost;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "hits: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void read_points(void)
{
	char registers[3][4];

	while (point_count < POINT_MAX &&
	       scanf("%li %3[^,],%3[^,],%3s", (long *)&points[point_count].offset, registers[0],
		     registers[1], registers[2]) == 4) {
		struct point *point = &points[point_count++];

		for (int i = 0; i < 3; i++)
			point->registers[i] =
				registers[i][0] == '-' ? NONE : atoi(registers[i]) & 15;
	}
	if (!feof(stdin)) {
		fprintf(stderr, "hits: point %zu cannot be read\n", point_count + 1);
		exit(2);
	}
}

static int uprobe_type(void)
{
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type;

	if (!file || fscanf(file, "%d", &type) != 1)
		die("uprobe event type");
	fclose(file);
	return type;
}

static void open_event(struct point *point, const char *file, int type, pid_t pid)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = type,
		.config1 = (uintptr_t)file,
		.config2 = point->offset,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_REGS_USER,
		.sample_regs_user = SAMPLE_REGISTERS,
		.disabled = 1,
		.enable_on_exec = 1,
	};

	point->fd = syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (point->fd < 0) {
		fprintf(stderr, "hits: %s+%#lx: %s\n", file, point->offset, strerror(errno));
		exit(1);
	}
	if (ioctl(point->fd, PERF_EVENT_IOC_ID, &point->id))
		die("event id");
}

/* All events share the ring of the first. */
static struct perf_event_mmap_page *open_events(const char *file, pid_t pid)
{
	int type = uprobe_type();
	void *ring;

	for (size_t i = 0; i < point_count; i++)
		open_event(&points[i], file, type, pid);
	ring = mmap(NULL, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, points[0].fd,
		    0);
	if (ring == MAP_FAILED)
		die("ring");
	for (size_t i = 1; i < point_count; i++)
		if (ioctl(points[i].fd, PERF_EVENT_IOC_SET_OUTPUT, points[0].fd))
			die("set output");
	return ring;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static void take_sample(const struct sample *sample)
{
	struct point *point = NULL;
	uint64_t hash = 0;

	for (size_t i = 0; i < point_count && !point; i++)
		if (points[i].id == sample->id)
			point = &points[i];
	if (!point || !sample->abi) {
		lost++;
		return;
	}
	for (int i = 0; i < 3; i++) {
		uint64_t value = point->registers[i] == NONE
					 ? 0
					 : sample->registers[sample_index[point->registers[i]]];

		point->sums[i] += value;
		hash = mix(hash, value);
	}
	hash = mix(hash, sample->registers[sample_index[RSP]]);
	point->hits++;
	point->mix += hash;
	if (point->registers[0] != NONE && sample->registers[sample_index[point->registers[0]]]) {
		point->nonzero++;
		point->nonzero_mix += hash;
	}
}

static void drain(struct perf_event_mmap_page *ring)
{
	uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = ring->data_tail;
	const uint8_t *data = (const uint8_t *)ring + PAGE;

	while (tail < head) {
		union {
			struct sample sample;
			struct {
				struct perf_event_header header;
				uint64_t id, count;
			} lost;
			uint8_t bytes[sizeof(struct sample)];
		} record;
		const struct perf_event_header *header = &record.sample.header;

		/* Records may wrap around the end of the ring. */
		for (size_t i = 0; i < sizeof(record); i++)
			record.bytes[i] = data[(tail + i) % (RING_PAGES * PAGE)];
		if (header->type == PERF_RECORD_SAMPLE)
			take_sample(&record.sample);
		else if (header->type == PERF_RECORD_LOST)
			lost += record.lost.count;
		tail += header->size;
	}
	__atomic_store_n(&ring->data_tail, tail, __ATOMIC_RELEASE);
}

static pid_t start(char **command, int *gate)
{
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		die("pipe");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid) {
		char byte;

		close(fds[1]);
		if (read(fds[0], &byte, 1) != 1)
			_exit(1);
		close(fds[0]);
		/* What it prints is not part of the answer. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execvp(command[0], command);
		_exit(127);
	}
	close(fds[0]);
	*gate = fds[1];
	return pid;
}

static void raise_file_limit(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static bool print_points(void)
{
	uint64_t counted = 0, sampled = 0;

	for (size_t i = 0; i < point_count; i++) {
		const struct point *p = &points[i];
		uint64_t count;

		if (read(p->fd, &count, sizeof(count)) != sizeof(count))
			die("count");
		counted += count;
		sampled += p->hits;
		printf("hits=%lu nonzero=%lu sums=%lu,%lu,%lu mix=%lu nonzero_mix=%lu\n", p->hits,
		       p->nonzero, p->sums[0], p->sums[1], p->sums[2], p->mix, p->nonzero_mix);
	}
	if (!lost && counted == sampled)
		return true;
	fprintf(stderr, "hits: %lu of %lu hits sampled, %lu lost\n", sampled, counted, lost);
	return false;
}

int main(int argc, char **argv)
{
	struct perf_event_mmap_page *ring;
	int status, gate;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: hits FILE COMMAND [ARGUMENT...] < POINTS\n");
		return 2;
	}
	read_points();
	if (!point_count)
		return 0;
	raise_file_limit();
	pid = start(argv + 2, &gate);
	ring = open_events(argv[1], pid);
	if (write(gate, "", 1) != 1)
		die("start");
	while (!waitpid(pid, &status, WNOHANG)) {
		poll(NULL, 0, 10);
		drain(ring);
	}
	drain(ring);
	if (!print_points())
		return 1;
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "hits: the command failed\n");
		return 1;
	}
	return 0;
}
