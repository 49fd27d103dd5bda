/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Processes that are forked with many live blocks: `copies [--wait] COMMAND [BLOCKS]`, the commands
 * stand at the end. Every process adds its truth to the file truth.PID in the current folder, where
 * a child has in use what its parent had at the fork. When all have, it prints `done` and, while
 * all live, waits for a line; then the parent ends last.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "truth_process.h"

static struct block *held, *more;
static size_t count;
static int written[2], gate[2];

SITE(held_block);
SITE_FN static struct block held_block(size_t size)
{
	return block_new(&held_block_site, opaque(malloc(size)), size);
}

SITE(other_block);
SITE_FN static struct block other_block(size_t size)
{
	return block_new(&other_block_site, opaque(calloc(1, size)), size);
}

SITE(own_block);
SITE_FN static struct block own_block(size_t size)
{
	return block_new(&own_block_site, opaque(malloc(size)), size);
}

SITE(moved_block);
SITE_FN static struct block moved_block(struct block *old, size_t size)
{
	return block_moved(old, &moved_block_site, opaque(realloc(opaque(old->ptr), size)), size);
}

/* In a forked child: in use is what was in use, allocated is nothing. */
static void inherit(void)
{
	for (struct site *site = __start_truth_sites; site < __stop_truth_sites; site++) {
		site->freed_objects -= site->alloc_objects;
		site->freed_space -= site->alloc_space;
		site->alloc_objects = site->alloc_space = 0;
	}
}

static void *array(size_t size)
{
	void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	require(ptr != MAP_FAILED);
	return ptr;
}

static void hold(void)
{
	for (size_t i = 0; i < count; i++)
		held[i] = i % 7 ? held_block(20 + i % 300) : other_block(30 + i % 300);
}

/*
 * Frees, moves and allocates, each role others: the sizes are those of before, so that addresses
 * are used again at once. A block that was moved or allocated here may be freed here, too.
 */
static void change(size_t role)
{
	for (size_t i = 0; i < count; i++) {
		if (!held[i].ptr)
			continue;
		switch ((i + role) % 5) {
		case 0:
			block_free(&held[i]);
			break;
		case 1:
			held[i] = moved_block(&held[i], 25 + i % 300 + role);
			break;
		case 2:
			block_free(&held[i]);
			held[i] = own_block(20 + i % 300);
			break;
		case 3:
			if (i % 2)
				more[i] = own_block(20 + i % 300);
			break;
		}
	}
	for (size_t i = 0; i < count; i += 3) {
		if (more[i].ptr)
			block_free(&more[i]);
		if (held[i].ptr)
			block_free(&held[i]);
	}
}

/* All that a child has to do before its end. */
static void __attribute__((noreturn)) end_child(const char *role)
{
	char byte = 0;

	write_truth(role, false);
	require(write(written[1], &byte, 1) == 1);
	close(gate[1]);
	require(read(gate[0], &byte, 1) == 0);
	/* Its parent is to be the last one. */
	while (wait(NULL) > 0)
		;
	_exit(0);
}

static void await_children(size_t children)
{
	char byte;

	while (children--)
		require(read(written[0], &byte, 1) == 1);
}

static pid_t fork_child(void)
{
	pid_t pid = fork();

	require(pid >= 0);
	if (pid == 0)
		inherit();
	return pid;
}

/* One child, and both change what they have at the same time. */
static void run_one(void)
{
	hold();
	if (fork_child() == 0) {
		change(1);
		end_child("child");
	}
	change(2);
	await_children(1);
}

/* A child that has what its parent has. */
static void run_idle(void)
{
	hold();
	if (fork_child() == 0)
		end_child("child");
	await_children(1);
}

/* Eight children, between which the parent changes what it has. */
static void run_many(void)
{
	hold();
	for (size_t i = 0; i < 8; i++) {
		if (fork_child() == 0) {
			change(i);
			end_child("child");
		}
		change(i + 3);
	}
	await_children(8);
}

/* A chain: each process forks the next one at once, and then changes what it has. */
static void run_nested(void)
{
	size_t depth = 0;

	hold();
	while (depth < 5 && fork_child() == 0) {
		depth++;
		/* What is freed before the next fork is not inherited by it. */
		for (size_t i = depth; i < count; i += 11)
			if (held[i].ptr)
				block_free(&held[i]);
	}
	change(depth);
	if (depth)
		end_child("child");
	await_children(5);
}

static void wait_for_end_of(pid_t parent)
{
	while (getppid() == parent)
		usleep(1000);
}

/* The process that has forked ends before its child, which ends soon: the last one. */
static void run_orphan(void)
{
	pid_t parent = getpid();

	hold();
	if (fork_child()) {
		write_truth("parent", false);
		_exit(0);
	}
	wait_for_end_of(parent);
	parent = getpid();
	if (fork_child()) {
		write_truth("middle", false);
		_exit(0);
	}
	wait_for_end_of(parent);
	change(1);
	write_truth("last", false);
	_exit(0);
}

static void run_exec(void)
{
	static char *const argv[] = {"true", NULL}, *const environment[] = {NULL};

	hold();
	for (size_t i = 0; i < 4; i++) {
		if (fork_child() == 0) {
			change(i);
			write_truth("replaced", true);
			/* Also one that has had its copies for long. */
			usleep(i % 2 ? 300000 : 0);
			execve("/bin/true", argv, environment);
			_exit(1);
		}
	}
	change(5);
	for (size_t i = 0; i < 4; i++)
		require(wait(NULL) > 0);
}

/* Children that end at once, or soon. */
static void run_short(void)
{
	hold();
	for (size_t i = 0; i < 50; i++) {
		if (fork_child() == 0) {
			change(i);
			usleep(i % 4 * 20000);
			write_truth("short", false);
			_exit(0);
		}
		if (i % 10 == 9)
			change(i);
		if (i >= 4)
			require(wait(NULL) > 0);
	}
	while (wait(NULL) > 0)
		;
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{"idle", run_idle},	{"one", run_one},   {"many", run_many},	  {"nested", run_nested},
	{"orphan", run_orphan}, {"exec", run_exec}, {"short", run_short},
};

int main(int argc, char **argv)
{
	truth_start(&argc, argv);
	count = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
	held = array(count * sizeof(*held));
	more = array(count * sizeof(*more));
	require(pipe2(written, O_CLOEXEC) == 0 && pipe2(gate, O_CLOEXEC) == 0);
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, argv[1]) != 0)
			continue;
		commands[i].run();
		write_truth("parent", false);
		printf("done\n");
		fflush(stdout);
		truth_wait_line();
		close(gate[1]);
		while (wait(NULL) > 0)
			;
		_exit(0);
	}
	fprintf(stderr, "usage: copies [--wait] COMMAND [BLOCKS]\n");
	return 2;
}
