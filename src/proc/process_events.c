/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Forks, execs and exits are records of the same rings, and need attr.task and attr.comm_exec. They
 * are not asked for as long as nobody uses them: every thread of the host that begins or ends would
 * wake us.
 */
#include "proc/process_events.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of a ring: some 2000 records, a tenth of a second of a CPU that does nothing but execute. */
#define RING_SIZE (256 << 10)
/* A path has 4096 bytes at most, and the rest of a record some hundred. */
#define RECORD_MAX 4352

struct ring {
	int fd;
	struct perf_event_mmap_page *page; /* the data follows it */
};

struct process_events {
	int epoll_fd;
	size_t count;
	struct ring rings[]; /* of the CPUs that were online */
};

static size_t map_size(void)
{
	return sysconf(_SC_PAGESIZE) + RING_SIZE;
}

static int open_event(int cpu)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TIME,
		.sample_id_all = 1,
		/* Without mmap_data: executable mappings alone. */
		.mmap = 1,
		.mmap2 = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		/* wakeup_events would count samples alone. */
		.watermark = 1,
		.wakeup_watermark = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int open_ring(struct process_events *events, int cpu)
{
	struct ring *ring = &events->rings[events->count];
	struct epoll_event event = {.events = EPOLLIN};
	_cleanup_close_ int fd = open_event(cpu);
	void *page;

	/* An offline CPU. */
	if (fd == -ENODEV)
		return 0;
	if (fd < 0)
		return fd;
	page = mmap(NULL, map_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	event.data.fd = fd;
	if (epoll_ctl(events->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		munmap(page, map_size());
		return -errno;
	}
	*ring = (struct ring){.fd = take_fd(fd), .page = page};
	events->count++;
	return 0;
}

int process_events_open(struct process_events **ret)
{
	struct process_events *events CLEANUP(process_events) = NULL;
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	int err;

	events = calloc(1, sizeof(*events) + cpus * sizeof(*events->rings));
	if (!events)
		return -ENOMEM;
	events->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (events->epoll_fd < 0)
		return -errno;
	for (int cpu = 0; cpu < cpus; cpu++) {
		err = open_ring(events, cpu);
		if (err)
			return err;
	}
	*ret = take_ptr(events);
	return 0;
}

void process_events_close(struct process_events *events)
{
	if (!events)
		return;
	for (size_t i = 0; i < events->count; i++) {
		munmap(events->rings[i].page, map_size());
		close(events->rings[i].fd);
	}
	if (events->epoll_fd >= 0)
		close(events->epoll_fd);
	free(events);
}

int process_events_fd(const struct process_events *events)
{
	return events->epoll_fd;
}

static void read_ring(struct ring *ring, const struct perf_handlers *handlers)
{
	const char *data = (const char *)ring->page + sysconf(_SC_PAGESIZE);
	uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = ring->page->data_tail;

	/* The kernel tells what was lost with the next record that fits, which may never come. */
	if (perf_records_read(data, RING_SIZE, tail, head, handlers) ||
	    head - tail > RING_SIZE - RECORD_MAX)
		handlers->lost(handlers->arg, 1);
	__atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
}

/* The event of a CPU that went offline hangs up, and would keep us awake. */
static void drop_hung_up(struct process_events *events)
{
	struct epoll_event ready[16];
	int count = epoll_wait(events->epoll_fd, ready, ARRAY_SIZE(ready), 0);

	for (int i = 0; i < count; i++) {
		if (ready[i].events & (EPOLLHUP | EPOLLERR))
			epoll_ctl(events->epoll_fd, EPOLL_CTL_DEL, ready[i].data.fd, NULL);
	}
}

void process_events_read(struct process_events *events, const struct perf_handlers *handlers)
{
	/* Waiting takes the mark of being ready off a ring, so it comes first. */
	drop_hung_up(events);
	/* All of them: which ones are ready was told to whoever waited before us. */
	for (size_t i = 0; i < events->count; i++)
		read_ring(&events->rings[i], handlers);
}
