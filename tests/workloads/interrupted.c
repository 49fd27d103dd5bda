/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What happens while threads are inside realloc, which faults and does not come back:
 * `interrupted [--wait] COMMAND [NUMBER]`, the commands stand at the end.
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/wait.h>

#include "fault.h"

#define OTHERS_MAX 10000
#define RESTS	   100
#define THREADS	   8
#define ROUNDS	   10
#define DEPTH	   65536

static sigjmp_buf escape;
static void (*on_fault)(void);

SITE(held_block);
SITE_FN static struct block held_block(size_t size)
{
	struct block block = block_new(&held_block_site, opaque(malloc(size)), size);

	require(block.ptr);
	return block;
}

SITE(other_block);
SITE_FN static struct block other_block(size_t size)
{
	return block_new(&other_block_site, opaque(malloc(size)), size);
}

SITE(rest_block);
SITE_FN static struct block rest_block(size_t size)
{
	return block_new(&rest_block_site, opaque(malloc(size)), size);
}

static void handle_fault(int sig)
{
	(void)sig;
	on_fault();
}

/* Deep down: whatever the thread calls later, it calls from further up. */
SITE_FN static void fault_in_realloc(const struct block *block)
{
	volatile char frame[DEPTH];

	frame[0] = 0;
	protect_header(block, PROT_NONE);
	opaque(realloc(opaque(block->ptr), 2 * block->size));
	require(!"no fault");
	(void)frame[0];
}

static void run_rest(size_t count)
{
	for (size_t i = 0; i < count; i++)
		rest_block(100 + i);
}

static struct block others[OTHERS_MAX];
static size_t other_count;
static sem_t begin, done;

static void *allocate_others(void *arg)
{
	for (size_t i = 0; i < other_count; i++) {
		if (i % (other_count / ROUNDS) == 0)
			sem_wait(&begin);
		others[i] = other_block(32);
		if ((i + 1) % (other_count / ROUNDS) == 0)
			sem_post(&done);
	}
	return arg;
}

static void let_others_allocate(void)
{
	sem_post(&begin);
	sem_wait(&done);
	siglongjmp(escape, 1);
}

/*
 * Another thread allocates in the meantime, so many blocks in some rounds; all are freed, and the
 * rest follows.
 */
static void run_others(size_t count)
{
	struct block held = held_block(4 * MIB), next;
	pthread_t thread;

	require(count <= OTHERS_MAX && count % ROUNDS == 0);
	other_count = count;
	sem_init(&begin, 0, 0);
	sem_init(&done, 0, 0);
	require(pthread_create(&thread, NULL, allocate_others, NULL) == 0);
	on_fault = let_others_allocate;
	for (int i = 0; i < ROUNDS; i++) {
		if (sigsetjmp(escape, 1) == 0)
			fault_in_realloc(&held);
		protect_header(&held, PROT_READ | PROT_WRITE);
		next = other_block(16);
		block_free(&next);
	}
	for (size_t i = 0; i < count; i++)
		block_free(&others[i]);
	block_free(&held);
	run_rest(RESTS);
}

static char program[4096];

static void execute_rest(void)
{
	static char *const argv[] = {program, "--wait", "rest", NULL}, *const environment[] = {
									       NULL};

	execve(program, argv, environment);
	_exit(4);
}

/* The program is executed again, for the rest. */
static void run_execute(size_t number)
{
	struct block held = held_block(4 * MIB + number);

	require(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
	on_fault = execute_rest;
	fault_in_realloc(&held);
}

static atomic_int inside;

static void stay_inside(void)
{
	atomic_fetch_add(&inside, 1);
	for (;;)
		pause();
}

static void *enter(void *arg)
{
	struct block held = held_block(2 * MIB);

	fault_in_realloc(&held);
	return arg;
}

/* So many processes end while all of their threads but the first are in there. */
static void run_end(size_t count)
{
	pthread_t thread;
	int status;

	on_fault = stay_inside;
	while (count--) {
		pid_t pid = fork();

		require(pid >= 0);
		if (pid == 0) {
			for (int i = 0; i < THREADS; i++)
				require(pthread_create(&thread, NULL, enter, NULL) == 0);
			while (atomic_load(&inside) < THREADS)
				sched_yield();
			_exit(0);
		}
		require(waitpid(pid, &status, 0) == pid && status == 0);
	}
	run_rest(RESTS);
}

static const struct {
	const char *name;
	void (*run)(size_t number);
	size_t number;
} commands[] = {
	{"rest", run_rest, RESTS},
	{"others", run_others, 1000},
	{"execute", run_execute, 0},
	{"end", run_end, 10},
};

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	fault_start(handle_fault);
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, argv[1]) != 0)
			continue;
		commands[i].run(argc > 2 ? strtoul(argv[2], NULL, 10) : commands[i].number);
		return truth_finish();
	}
	fprintf(stderr, "usage: interrupted [--wait] COMMAND [NUMBER]\n");
	return 2;
}
