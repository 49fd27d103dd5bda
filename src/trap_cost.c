/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of our own are probed and called. They take turns in each round, and the medians of all
 * rounds count.
 *
 * In a loop that does nothing else a trap costs less than in a program that uses its caches. So
 * memory is touched between the calls, and what that takes is subtracted.
 */
#include "trap_cost.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "counter.h"
#include "proc/maps.h"
#include "util/clock.h"

#define ROUND_SIZE 100

/* Between two rounds of trap_timer_wait(). */
#define ROUND_MS 50

#define TOUCHED_BYTES (16u << 10)
#define CACHE_LINE    64

/* The kernel emulates push; it single-steps xor. */
void trap_emulated(void);
void trap_stepped(void);
void trap_returning(void); /* emulated, too, with a probe at its return */

#define FUNCTION(name, code)                                                                       \
	"	.balign 16\n"                                                                            \
	"	.globl " name "\n"                                                                 \
	"	.hidden " name "\n"                                                                \
	"	.type " name ",@function\n" name ":\n"                                             \
	"	.cfi_startproc\n" code "	ret\n"                                                    \
	"	.cfi_endproc\n"                                                                          \
	"	.size " name ",.-" name "\n"

asm("	.pushsection .text\n" FUNCTION("trap_emulated", "	push %rax\n	pop %rcx\n")
	    FUNCTION("trap_stepped", "	xor %eax,%eax\n")
		    FUNCTION("trap_returning",
			     "	push %rax\n	pop %rcx\n") "	.popsection\n");

enum { EMULATED, STEPPED, RETURNING, FUNCTION_COUNT };

static void (*const functions[FUNCTION_COUNT])(void) = {
	[EMULATED] = trap_emulated,
	[STEPPED] = trap_stepped,
	[RETURNING] = trap_returning,
};

struct trap_timer {
	struct counter *counter;
	bool first_thread_only;
	double emulated[TRAP_TIMER_ROUNDS]; /* ns */
	double stepped[TRAP_TIMER_ROUNDS];
	double at_return[TRAP_TIMER_ROUNDS];
	size_t rounds;
};

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values, size_t count)
{
	double sorted[TRAP_TIMER_ROUNDS];

	memcpy(sorted, values, count * sizeof(*values));
	qsort(sorted, count, sizeof(*sorted), by_value);
	return sorted[count / 2];
}

static void touch_memory(void)
{
	static volatile char memory[TOUCHED_BYTES];

	for (size_t i = 0; i < sizeof(memory); i += CACHE_LINE)
		memory[i]++;
}

static void do_nothing(void)
{
}

/* ns of a call and what is done between two. */
static double time_calls(void (*function)(void))
{
	uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	for (size_t i = 0; i < ROUND_SIZE; i++) {
		touch_memory();
		function();
	}
	return (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / ROUND_SIZE;
}

void trap_timer_round(struct trap_timer *timer)
{
	double without = time_calls(do_nothing);
	double with = time_calls(trap_emulated);
	double returning = time_calls(trap_returning);
	double stepped = time_calls(trap_stepped);

	if (timer->rounds == TRAP_TIMER_ROUNDS)
		return;
	timer->emulated[timer->rounds] = with - without;
	timer->at_return[timer->rounds] = returning > with ? returning - with : 0;
	timer->stepped[timer->rounds++] = stepped - without;
}

void trap_timer_wait(struct trap_timer *timer, unsigned int ms)
{
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + ms * 1000000ull;
	struct timespec pause = {.tv_nsec = ROUND_MS * 1000000};

	while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
		nanosleep(&pause, NULL);
		trap_timer_round(timer);
	}
}

struct trap_cost trap_timer_cost(const struct trap_timer *timer)
{
	return (struct trap_cost){
		.emulated = median(timer->emulated, timer->rounds),
		.stepped = median(timer->stepped, timer->rounds),
		.at_return = median(timer->at_return, timer->rounds),
		.first_thread_only = timer->first_thread_only,
	};
}

void trap_timer_close(struct trap_timer *timer)
{
	if (!timer)
		return;
	counter_close(timer->counter);
	free(timer);
}

static int offset_of(void (*function)(void), uint64_t *ret)
{
	struct maps *maps CLEANUP(maps) = NULL;
	const struct mapping *mapping;
	int err;

	err = maps_read(getpid(), &maps);
	if (err)
		return err;
	mapping = maps_find(maps, (uintptr_t)function);
	if (!mapping)
		return -ENOENT;
	*ret = (uintptr_t)function - mapping->start + mapping->offset;
	return 0;
}

static void *call_once(void *arg)
{
	/* The first single step sets up a page. */
	for (size_t i = 0; i < FUNCTION_COUNT; i++)
		functions[i]();
	return NULL;
}

/* Whether a thread that is not the first runs into the probes. */
static int try_probes(const struct counter *counter, bool *ret)
{
	struct counter_value value;
	pthread_t thread;
	int err;

	err = -pthread_create(&thread, NULL, call_once, NULL);
	if (err)
		return err;
	pthread_join(thread, NULL);
	err = counter_read(counter, EMULATED, &value);
	if (!err)
		*ret = value.calls;
	return err;
}

static int place_probes(enum attach_mode mode, struct counter **ret, bool *ret_works)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct counter *counter CLEANUP(counter) = NULL;
	int err;

	if (fd < 0)
		return -errno;
	err = counter_open(mode, getpid(), 1, &counter);
	for (size_t i = 0; i < FUNCTION_COUNT && !err; i++) {
		uint64_t offset;

		err = offset_of(functions[i], &offset);
		if (!err)
			err = counter_add_place(counter, fd, offset, false);
		if (!err && i == RETURNING)
			err = counter_add_place(counter, fd, offset, true);
	}
	if (err)
		return err;
	counter_start(counter);
	err = try_probes(counter, ret_works);
	if (!err)
		*ret = take_ptr(counter);
	return err;
}

int trap_timer_open(enum attach_mode mode, struct trap_timer **ret)
{
	struct trap_timer *timer CLEANUP(trap_timer) = calloc(1, sizeof(*timer));
	bool works;
	int err;

	if (!timer)
		return -ENOMEM;
	err = place_probes(mode, &timer->counter, &works);
	if (!err && !works && mode != ATTACH_PERF) {
		counter_close(take_ptr(timer->counter));
		timer->first_thread_only = true;
		err = place_probes(ATTACH_PERF, &timer->counter, &works);
	}
	if (err)
		return err;
	if (!works)
		return -EOPNOTSUPP;
	trap_timer_round(timer);
	*ret = take_ptr(timer);
	return 0;
}

int trap_cost_measure(enum attach_mode mode, struct trap_cost *ret)
{
	struct trap_timer *timer CLEANUP(trap_timer) = NULL;
	int err;

	err = trap_timer_open(mode, &timer);
	if (err)
		return err;
	for (size_t i = 1; i < TRAP_TIMER_ROUNDS; i++)
		trap_timer_round(timer);
	*ret = trap_timer_cost(timer);
	return 0;
}
