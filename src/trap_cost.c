/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two functions of our own are probed, and called in a thread that is not the first. The speed of
 * a machine with other users changes within milliseconds: the calls are timed in rounds, and the
 * median round counts. What the calls cost without a probe is less than a hundredth.
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

#define FUNCTION(name, code)                                                                       \
	"	.balign 16\n"                                                                      \
	"	.globl " name "\n"                                                                 \
	"	.hidden " name "\n"                                                                \
	"	.type " name ",@function\n" name ":\n"                                             \
	"	.cfi_startproc\n" code "	ret\n"                                                \
	"	.cfi_endproc\n"                                                                    \
	"	.size " name ",.-" name "\n"

asm("	.pushsection .text\n" FUNCTION("trap_emulated", "	push %rax\n	pop %rcx\n")
	    FUNCTION("trap_stepped", "	xor %eax,%eax\n") "	.popsection\n");

enum trap_place { PLACE_EMULATED, PLACE_STEPPED, PLACE_RETURN };

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct run {
	void (*function)(void);
	double ns; /* of a call */
};

static void *run_calls(void *arg)
{
	struct run *run = arg;
	double rounds[ROUNDS];

	/* The first single step sets up a page. */
	for (size_t i = 0; i < ROUND_SIZE; i++)
		run->function();
	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

		for (size_t n = 0; n < ROUND_SIZE; n++)
			run->function();
		rounds[i] = (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / ROUND_SIZE;
	}
	qsort(rounds, ROUNDS, sizeof(rounds[0]), by_value);
	run->ns = rounds[ROUNDS / 2];
	return NULL;
}

static int time_calls(void (*function)(void), double *ret_ns)
{
	struct run run = {.function = function};
	pthread_t thread;
	int err;

	err = pthread_create(&thread, NULL, run_calls, &run);
	if (err)
		return -err;
	pthread_join(thread, NULL);
	*ret_ns = run.ns;
	return 0;
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

/* Probes one place and times it. *ret_calls: how many were seen. */
static int measure_place(enum attach_mode mode, int fd, enum trap_place place, double *ret_ns,
			 uint64_t *ret_calls)
{
	void (*function)(void) = place == PLACE_STEPPED ? trap_stepped : trap_emulated;
	struct counter *counter CLEANUP(counter) = NULL;
	struct counter_value value;
	uint64_t offset;
	int err;

	err = offset_of(function, &offset);
	if (!err)
		err = counter_open(mode, getpid(), 1, &counter);
	if (!err)
		err = counter_add_place(counter, fd, offset, place == PLACE_RETURN);
	if (!err)
		counter_start(counter);
	if (!err)
		err = time_calls(function, ret_ns);
	if (!err)
		err = counter_read(counter, 0, &value);
	if (!err)
		*ret_calls = value.calls;
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
	err = measure_place(mode, fd, PLACE_EMULATED, &cost.emulated, &calls);
	if (!err && !calls && mode != ATTACH_PERF) {
		cost.first_thread_only = true;
		mode = ATTACH_PERF;
		err = measure_place(mode, fd, PLACE_EMULATED, &cost.emulated, &calls);
	}
	if (!err && !calls)
		err = -EOPNOTSUPP;
	if (!err)
		err = measure_place(mode, fd, PLACE_STEPPED, &cost.stepped, &calls);
	if (!err)
		err = measure_place(mode, fd, PLACE_RETURN, &cost.at_return, &calls);
	/* A return probe alone has a trap at the entry, too. */
	cost.at_return -= cost.emulated;
	if (cost.at_return < 0)
		cost.at_return = 0;
	if (!err)
		*ret = cost;
	return err;
}
