/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process forks while it has live blocks; its children free them all in their own copy, and
 * allocate, by the same functions. Nothing of that is the parent's. Also vfork and posix_spawn.
 */
#include <spawn.h>
#include <sys/wait.h>

#include "truth.h"

#define BLOCKS 100
#define ROUNDS 10

extern char **environ;

SITE(before_fork);
SITE_FN static struct block before_fork(size_t size)
{
	return block_new(&before_fork_site, opaque(malloc(size)), size);
}

SITE(around_fork);
SITE_FN static struct block around_fork(size_t size)
{
	return block_new(&around_fork_site, opaque(malloc(size)), size);
}

static void wait_child(pid_t pid)
{
	int status;

	require(pid > 0);
	require(waitpid(pid, &status, 0) == pid);
	require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void child(struct block *blocks)
{
	for (int i = 0; i < BLOCKS; i++)
		block_free(&blocks[i]);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = before_fork(1000 + i);
	for (int i = 0; i < BLOCKS; i += 2)
		block_free(&blocks[i]);
	_exit(0);
}

int main(int argc, char **argv)
{
	static char *const true_argv[] = {"true", NULL};
	struct block blocks[BLOCKS];

	truth_start(&argc, argv);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = before_fork(100 + i);
	for (int round = 0; round < ROUNDS; round++) {
		struct block block;
		pid_t pid;

		pid = fork();
		if (pid == 0)
			child(blocks);
		/* At the same time as the child, so likely at the same addresses. */
		block = around_fork(1000 + round);
		wait_child(pid);
		if (round % 2)
			block_free(&block);

		pid = vfork();
		if (pid == 0) {
			execve("/bin/true", true_argv, environ);
			_exit(1);
		}
		wait_child(pid);
		require(posix_spawn(&pid, "/bin/true", NULL, NULL, true_argv, environ) == 0);
		wait_child(pid);
	}
	for (int i = 0; i < BLOCKS; i += 2)
		block_free(&blocks[i]);
	return truth_finish();
}
