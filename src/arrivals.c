/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's record of a mapping says that there is a file to look at. What is looked at then is
 * all that the process maps, as the record shows a file otherwise than /proc does: under overlayfs
 * with another inode, in another mount namespace with another path. A file whose mapping was still
 * there when it was looked at is not looked at again.
 *
 * A process may map and unmap files all the time. Looks that find nothing new are therefore spaced,
 * so that they take a tenth of a CPU at most, yet no allocator waits longer than PAUSE_MAX_NS, or,
 * where records are lost in a scope of many processes, PAUSE_ALL_MAX_NS.
 */
#define HASH_NONFATAL_OOM 1

#include "arrivals.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <uthash.h>

#include "proc/maps.h"
#include "proc/process_events.h"
#include "util/clock.h"

#define PAUSE_FACTOR	 9
#define PAUSE_MAX_NS	 50000000
#define PAUSE_ALL_MAX_NS 1000000000

/*
 * A program that starts maps file after file, and a machine starts many: after a record that needs
 * no look, those that follow wait so long to be read together.
 */
#define GATHER_NS 10000000

/* Files that are remembered; then all are forgotten, which costs one look each. */
#define MAX_SEEN 65536

struct file_key {
	uint64_t inode;
	uint64_t generation;
	uint64_t device;
};

/* A file that has been looked at. */
struct seen_file {
	struct file_key key;
	UT_hash_handle hh;
};

/* A mapping that has not. */
struct arrival {
	struct arrival *next;
	struct file_key key;
	uint64_t start;
	uint64_t offset;
};

/* Processes that are told apart; of more than that, everybody in the scope is looked at. */
#define MAX_WANTED 256

struct arrivals {
	struct allocators *allocators;
	const struct kernel *kernel;
	pid_t *wanted; /* to be looked at */
	size_t wanted_count;
	size_t wanted_capacity;
	bool all_wanted; /* everybody in the scope is */
	struct process_events *events;
	struct seen_file *seen;
	struct arrival *new;
	int epoll_fd;
	int timer_fd;
	uint64_t gather_ns;
	bool deaf;	     /* records do not wake us */
	bool time_known;     /* since_ns is the time of the first new mapping */
	uint64_t since_ns;   /* CLOCK_MONOTONIC, as below */
	uint64_t not_before; /* of the next look */
};

static void forget_seen(struct arrivals *arrivals)
{
	struct seen_file *file, *next;

	HASH_ITER (hh, arrivals->seen, file, next) {
		HASH_DEL(arrivals->seen, file);
		free(file);
	}
}

static void forget_new(struct arrivals *arrivals)
{
	while (arrivals->new) {
		struct arrival *arrival = arrivals->new;

		arrivals->new = arrival->next;
		free(arrival);
	}
}

static bool is_seen(const struct arrivals *arrivals, const struct file_key *key)
{
	const struct seen_file *file;

	HASH_FIND(hh, arrivals->seen, key, sizeof(*key), file);
	return file;
}

/* That a file is not remembered costs one look more. */
static void remember(struct arrivals *arrivals, const struct file_key *key)
{
	struct seen_file *file;

	if (is_seen(arrivals, key))
		return;
	if (HASH_COUNT(arrivals->seen) >= MAX_SEEN)
		forget_seen(arrivals);
	file = calloc(1, sizeof(*file));
	if (!file)
		return;
	file->key = *key;
	HASH_ADD(hh, arrivals->seen, key, sizeof(file->key), file);
	if (!file->hh.tbl)
		free(file);
}

static int add_wanted(struct arrivals *arrivals, pid_t pid)
{
	if (arrivals->wanted_count == arrivals->wanted_capacity) {
		size_t capacity = arrivals->wanted_capacity * 2 + 16;
		pid_t *wanted = reallocarray(arrivals->wanted, capacity, sizeof(*wanted));

		if (!wanted)
			return -ENOMEM;
		arrivals->wanted = wanted;
		arrivals->wanted_capacity = capacity;
	}
	arrivals->wanted[arrivals->wanted_count++] = pid;
	return 0;
}

static void want(struct arrivals *arrivals, pid_t pid)
{
	for (size_t i = 0; i < arrivals->wanted_count; i++)
		if (arrivals->wanted[i] == pid)
			return;
	if (arrivals->wanted_count >= MAX_WANTED || add_wanted(arrivals, pid))
		arrivals->all_wanted = true;
}

static void on_mapped(void *arg, const struct mapped_file *file)
{
	struct arrivals *arrivals = arg;
	const struct file_key key = {
		.inode = file->inode,
		.generation = file->generation,
		.device = (uint64_t)file->dev_major << 32 | file->dev_minor,
	};
	struct arrival *arrival;

	if (!file->inode || is_seen(arrivals, &key) ||
	    !kernel_has_process(arrivals->kernel, file->pid))
		return;
	if (!arrivals->wanted_count && !arrivals->all_wanted) {
		arrivals->time_known = true;
		arrivals->since_ns = file->time_ns;
	}
	want(arrivals, file->pid);
	/* In order on each CPU, but not among them. */
	if (file->time_ns < arrivals->since_ns)
		arrivals->since_ns = file->time_ns;
	arrival = calloc(1, sizeof(*arrival));
	if (!arrival)
		return;
	arrival->next = arrivals->new;
	arrival->key = key;
	arrival->start = file->start;
	arrival->offset = file->offset;
	arrivals->new = arrival;
}

/* Whatever was mapped meanwhile is to be found. */
static void on_lost(void *arg, uint64_t count)
{
	struct arrivals *arrivals = arg;

	arrivals->all_wanted = true;
	arrivals->time_known = false;
}

/* Whether the mapping that made a record is among those that were looked at. */
static bool is_mapped(const struct arrival *arrival, const struct maps *maps)
{
	const struct mapping *mapping = maps_find(maps, arrival->start);

	return mapping && mapping->executable && mapping->inode &&
	       mapping->offset + (arrival->start - mapping->start) == arrival->offset;
}

/* Returns as allocators_add_late(). */
static int look_at_maps(struct arrivals *arrivals, pid_t pid)
{
	struct maps *maps CLEANUP(maps) = NULL;
	int found;

	found = maps_read(pid, &maps);
	if (!found)
		found = allocators_add_late(arrivals->allocators, pid, maps,
					    arrivals->time_known ? arrivals->since_ns : 0);
	for (struct arrival *arrival = arrivals->new; arrival; arrival = arrival->next) {
		if (found >= 0 && is_mapped(arrival, maps))
			remember(arrivals, &arrival->key);
	}
	return found;
}

static int want_member(void *arg, __u32 serial, const struct process_info *info)
{
	return info->gone ? 0 : add_wanted(arg, info->tgid);
}

static int want_all(struct arrivals *arrivals)
{
	arrivals->wanted_count = 0;
	return kernel_read_processes(arrivals->kernel, want_member, arrivals);
}

static int look_at_wanted(struct arrivals *arrivals)
{
	int found = arrivals->all_wanted ? want_all(arrivals) : 0;

	if (found)
		return found;
	for (size_t i = 0; i < arrivals->wanted_count; i++) {
		int one = look_at_maps(arrivals, arrivals->wanted[i]);

		if (one == -ENOMEM)
			return one;
		if (one > 0)
			found += one;
	}
	return found;
}

/* Returns as arrivals_handle(). */
static int look(struct arrivals *arrivals)
{
	const uint64_t pause_max_ns = arrivals->all_wanted ? PAUSE_ALL_MAX_NS : PAUSE_MAX_NS;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC), pause_ns;
	int found = look_at_wanted(arrivals);

	forget_new(arrivals);
	arrivals->wanted_count = 0;
	arrivals->all_wanted = false;
	if (found <= 0) {
		arrivals->not_before = clock_ns(CLOCK_MONOTONIC);
		pause_ns = (arrivals->not_before - start_ns) * PAUSE_FACTOR;
		arrivals->not_before += pause_ns < pause_max_ns ? pause_ns : pause_max_ns;
	}
	return found;
}

/* Whether a record wakes us. */
static void listen_to_records(struct arrivals *arrivals, bool on)
{
	int fd = process_events_fd(arrivals->events);
	struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.fd = fd};

	if (arrivals->deaf != on)
		return;
	epoll_ctl(arrivals->epoll_fd, EPOLL_CTL_MOD, fd, &event);
	arrivals->deaf = !on;
}

/* Wakes us at a time, CLOCK_MONOTONIC. */
static int wake_at(struct arrivals *arrivals, uint64_t ns)
{
	const struct itimerspec at = {
		.it_value.tv_sec = ns / 1000000000,
		.it_value.tv_nsec = ns % 1000000000,
	};

	return timerfd_settime(arrivals->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) ? -errno : 0;
}

static int watch(struct arrivals *arrivals, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(arrivals->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

int arrivals_new(struct allocators *allocators, const struct kernel *kernel, bool many,
		 struct arrivals **ret)
{
	struct arrivals *arrivals CLEANUP(arrivals) = calloc(1, sizeof(*arrivals));
	int err;

	if (!arrivals)
		return -ENOMEM;
	arrivals->allocators = allocators;
	arrivals->kernel = kernel;
	arrivals->gather_ns = many ? GATHER_NS : 0;
	arrivals->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	arrivals->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (arrivals->epoll_fd < 0 || arrivals->timer_fd < 0)
		return -errno;
	err = process_events_open(&arrivals->events);
	if (!err)
		err = watch(arrivals, process_events_fd(arrivals->events));
	if (!err)
		err = watch(arrivals, arrivals->timer_fd);
	if (err)
		return err;
	*ret = take_ptr(arrivals);
	return 0;
}

void arrivals_free(struct arrivals *arrivals)
{
	if (!arrivals)
		return;
	process_events_close(arrivals->events);
	forget_seen(arrivals);
	forget_new(arrivals);
	free(arrivals->wanted);
	if (arrivals->epoll_fd >= 0)
		close(arrivals->epoll_fd);
	if (arrivals->timer_fd >= 0)
		close(arrivals->timer_fd);
	free(arrivals);
}

int arrivals_fd(const struct arrivals *arrivals)
{
	return arrivals->epoll_fd;
}

int arrivals_handle(struct arrivals *arrivals)
{
	const struct perf_handlers handlers = {
		.mapped = on_mapped,
		.lost = on_lost,
		.arg = arrivals,
	};
	uint64_t expired, now;

	/* Only to make it unreadable. */
	if (read(arrivals->timer_fd, &expired, sizeof(expired)) < 0)
		expired = 0;
	process_events_read(arrivals->events, &handlers);
	now = clock_ns(CLOCK_MONOTONIC);
	if ((arrivals->wanted_count || arrivals->all_wanted) && now >= arrivals->not_before) {
		listen_to_records(arrivals, true);
		return look(arrivals);
	}
	/* Woken by the timer: the next record is to wake us. */
	if (!arrivals->wanted_count && !arrivals->all_wanted &&
	    (arrivals->deaf || !arrivals->gather_ns)) {
		listen_to_records(arrivals, true);
		return 0;
	}
	listen_to_records(arrivals, false);
	return wake_at(arrivals, arrivals->wanted_count || arrivals->all_wanted
					 ? arrivals->not_before
					 : now + arrivals->gather_ns);
}
