/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions of our own are probed, and called in a thread that is not the first. The speed of a
 * machine with other users changes within milliseconds: the functions take turns, and the medians
 * of all rounds count. What the calls cost without a probe is less than a hundredth.
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

#define ROUNDS	   25
#define ROUND_SIZE 100

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

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
	qsort(values, ROUNDS, sizeof(values[0]), by_value);
	return values[ROUNDS / 2];
}

/* ns of a call. */
static double time_round(void (*function)(void))
{
	uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	for (size_t i = 0; i < ROUND_SIZE; i++)
		function();
	return (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / ROUND_SIZE;
}

static void *run_rounds(void *arg)
{
	double emulated[ROUNDS], stepped[ROUNDS], at_return[ROUNDS];
	struct trap_cost *cost = arg;

	/* The first single step sets up a page. */
	for (size_t i = 0; i < FUNCTION_COUNT; i++)
		time_round(functions[i]);
	for (size_t i = 0; i < ROUNDS; i++) {
		emulated[i] = time_round(trap_emulated);
		at_return[i] = time_round(trap_returning) - emulated[i];
		stepped[i] = time_round(trap_stepped);
	}
	cost->emulated = median(emulated);
	cost->stepped = median(stepped);
	cost->at_return = median(at_return);
	if (cost->at_return < 0)
		cost->at_return = 0;
	return NULL;
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

/* Probes all functions and times them. *ret_calls: how many of the first one were seen. */
static int measure(enum attach_mode mode, int fd, struct trap_cost *ret, uint64_t *ret_calls)
{
	struct counter *counter CLEANUP(counter) = NULL;
	struct counter_value value;
	pthread_t thread;
	int err;

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
	err = -pthread_create(&thread, NULL, run_rounds, ret);
	if (err)
		return err;
	pthread_join(thread, NULL);
	err = counter_read(counter, EMULATED, &value);
	*ret_calls = err ? 0 : value.calls;
	return err;
}

int trap_cost_measure(enum attach_mode mode, struct trap_cost *ret)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct trap_cost cost = {};
	uint64_t calls;
	int err;

	if (fd < 0)
		return -errno;
	err = measure(mode, fd, &cost, &calls);
	if (!err && !calls && mode != ATTACH_PERF) {
		err = measure(ATTACH_PERF, fd, &cost, &calls);
		cost.first_thread_only = true;
	}
	if (!err && !calls)
		err = -EOPNOTSUPP;
	if (!err)
		*ret = cost;
	return err;
}
