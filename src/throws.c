/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program that waits keeps its CPU: it cannot be preempted on every kernel, and the scheduler
 * likes to wake a thread where it was woken from. So there are two threads on different CPUs, and
 * whichever comes first does the work.
 */
#include "throws.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "heaptap/throw.h"

#define THREADS 2

struct throws {
	struct kernel *kernel;
	pthread_t threads[THREADS];
	pthread_mutex_t reading;
	size_t thread_count;
	int stop_fd;
};

/* Puts the return addresses of one request back. What cannot be written, the program has lost. */
static void put_back(const struct throw_request *request)
{
	_cleanup_close_ int memory_fd = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/mem", request->tgid);
	memory_fd = open(path, O_RDWR | O_CLOEXEC);
	for (__u32 i = 0; i < request->count && i < THROW_MAX_RETURNS; i++) {
		uint64_t address = request->returns[i].address;

		if (pwrite(memory_fd, &address, sizeof(address), request->returns[i].slot) < 0)
			return;
	}
}

static void serve(struct kernel *kernel)
{
	struct throw_request *requests = kernel_throws(kernel);

	for (size_t i = 0; i < THROW_MAX_REQUESTS; i++) {
		__u32 waits = THROW_WAITS;

		if (!__atomic_compare_exchange_n(&requests[i].state, &waits, THROW_IN_WORK, false,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		put_back(&requests[i]);
		__atomic_store_n(&requests[i].state, THROW_DONE, __ATOMIC_SEQ_CST);
	}
}

static void *run(void *arg)
{
	struct throws *throws = arg;
	struct pollfd fds[] = {
		{.fd = kernel_throw_fd(throws->kernel), .events = POLLIN},
		{.fd = throws->stop_fd, .events = POLLIN},
	};

	while (!fds[1].revents) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			break;
		serve(throws->kernel);
		/* The ring only wakes us; it has one reader at a time. */
		if (!pthread_mutex_trylock(&throws->reading)) {
			kernel_consume_throws(throws->kernel);
			pthread_mutex_unlock(&throws->reading);
			serve(throws->kernel);
		}
	}
	return NULL;
}

/* Gives a thread every THREADS-th of the CPUs that we may use; all of them if that leaves none. */
static void spread(pthread_t thread, size_t index)
{
	cpu_set_t all, some;
	size_t seen = 0;

	CPU_ZERO(&some);
	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && seen++ % THREADS == index)
			CPU_SET(cpu, &some);
	if (CPU_COUNT(&some))
		pthread_setaffinity_np(thread, sizeof(some), &some);
}

int throws_new(struct kernel *kernel, struct throws **ret)
{
	struct throws *throws CLEANUP(throws) = calloc(1, sizeof(*throws));

	if (!throws)
		return -ENOMEM;
	throws->kernel = kernel;
	pthread_mutex_init(&throws->reading, NULL);
	throws->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (throws->stop_fd < 0)
		return -errno;
	while (throws->thread_count < THREADS) {
		int err =
			-pthread_create(&throws->threads[throws->thread_count], NULL, run, throws);

		if (err)
			return err;
		spread(throws->threads[throws->thread_count], throws->thread_count);
		/* Before what else is to run there; if that is not allowed, it must do without. */
		pthread_setschedparam(throws->threads[throws->thread_count], SCHED_FIFO,
				      &(struct sched_param){.sched_priority = 1});
		throws->thread_count++;
	}
	*ret = take_ptr(throws);
	return 0;
}

void throws_free(struct throws *throws)
{
	if (!throws)
		return;
	if (throws->stop_fd >= 0)
		eventfd_write(throws->stop_fd, 1);
	for (size_t i = 0; i < throws->thread_count; i++)
		pthread_join(throws->threads[i], NULL);
	if (throws->stop_fd >= 0)
		close(throws->stop_fd);
	pthread_mutex_destroy(&throws->reading);
	free(throws);
}
