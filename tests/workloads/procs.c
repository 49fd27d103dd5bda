/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Families of processes: `procs [--wait] COMMAND [NUMBER]`, the commands stand at the end. Before
 * its end every process adds its truth to the file truth.PID in the current folder, as `process=PID
 * role=ROLE` and the lines of its sites; one that executes another program does so before that,
 * with nothing in use, as all of it is gone then. A PID's truth is the sum of what its file has.
 */
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "truth_process.h"

#define HELD	    60
#define OWN	    20
#define SHARED	    10
#define STORM_WIDTH 8
#define STACK_SIZE  (64 * 1024)

extern char **environ;

/* What children inherit. */
static struct block held[HELD];
static struct block shared[SHARED];
static char program[4096];

SITE(held_block);
SITE_FN static struct block held_block(size_t size)
{
	return block_new(&held_block_site, opaque(malloc(size)), size);
}

SITE(own_block);
SITE_FN static struct block own_block(size_t size)
{
	return block_new(&own_block_site, opaque(malloc(size)), size);
}

SITE(shared_block);
SITE_FN static struct block shared_block(size_t size)
{
	return block_new(&shared_block_site, opaque(malloc(size)), size);
}

/* To take over a block that was the parent's: there is nothing to count out. */
SITE(moved_block);
SITE_FN static struct block moved_block(struct block *inherited, size_t size)
{
	return block_new(&moved_block_site, opaque(realloc(inherited->ptr, size)), size);
}

static void __attribute__((noreturn)) end(const char *role)
{
	write_truth(role, false);
	_exit(0);
}

/* The heap that a program of its own has: some blocks stay. */
static void work(size_t seed)
{
	for (size_t i = 0; i < OWN; i++) {
		struct block block = own_block(1000 * seed + i + 1);

		if (i % 4)
			block_free(&block);
	}
}

static void hold(void)
{
	for (size_t i = 0; i < HELD; i++)
		held[i] = held_block(100 + i);
}

/* In a forked child: none of the blocks that it finds counts as its own. */
static void inherit(size_t seed)
{
	for (struct site *site = __start_truth_sites; site < __stop_truth_sites; site++) {
		site->alloc_objects = site->alloc_space = 0;
		site->freed_objects = site->freed_space = 0;
	}
	for (size_t i = 0; i < HELD / 2; i++) {
		free(opaque(held[i].ptr));
		held[i].ptr = NULL;
	}
	/* Likely where the parent has other blocks. */
	work(seed);
	held[HELD - 1] = moved_block(&held[HELD - 1], 5000 + seed);
	held[HELD - 2] = moved_block(&held[HELD - 2], 10);
}

static void execute(const char *command, size_t number)
{
	char text[32];
	char *const argv[] = {program, (char *)command, text, NULL};

	snprintf(text, sizeof(text), "%zu", number);
	execve(program, argv, environ);
	_exit(4);
}

static pid_t spawn(const char *command, size_t number)
{
	char text[32];
	char *const argv[] = {program, (char *)command, text, NULL};
	pid_t pid;

	snprintf(text, sizeof(text), "%zu", number);
	require(posix_spawn(&pid, program, NULL, NULL, argv, environ) == 0);
	return pid;
}

/* Waits for one child; -1 means any. */
static void reap(pid_t pid)
{
	int status;

	require(waitpid(pid, &status, __WALL) > 0);
	require((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
		(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

/* One program alone. */
static void run_child(size_t number)
{
	work(number);
	end("child");
}

/* Children that are all alive at once. */
static void run_fork(size_t count)
{
	int gate[2];

	require(pipe2(gate, O_CLOEXEC) == 0);
	hold();
	for (size_t i = 0; i < count; i++) {
		pid_t pid = fork();
		char byte;

		require(pid >= 0);
		if (pid == 0) {
			close(gate[1]);
			inherit(i + 1);
			require(read(gate[0], &byte, 1) == 0);
			end("child");
		}
		work(i + 1);
	}
	close(gate[1]);
	for (size_t i = 0; i < count; i++)
		reap(-1);
	for (size_t i = 0; i < HELD; i += 2)
		block_free(&held[i]);
}

/* Children that allocate and then execute a program. */
static void run_forkexec(size_t count)
{
	hold();
	for (size_t i = 0; i < count; i++) {
		pid_t pid = fork();

		require(pid >= 0);
		if (pid == 0) {
			inherit(i + 1);
			write_truth("child", true);
			execute("child", 10 + i);
		}
		reap(pid);
	}
}

/* One process, program after program. */
static void run_chain(size_t count)
{
	work(count + 1);
	if (count == 0)
		end("chained");
	write_truth("chained", true);
	execute("chain", count - 1);
}

static void *execute_child(void *arg)
{
	execute("child", 7);
	return arg;
}

/* The program is executed by another thread than the first. */
static void run_threadexec(size_t number)
{
	pthread_t thread;

	work(number);
	write_truth("threaded", true);
	require(pthread_create(&thread, NULL, execute_child, NULL) == 0);
	for (;;)
		pause();
}

static void run_vfork(size_t count)
{
	hold();
	for (size_t i = 0; i < count; i++) {
		pid_t pid = vfork();

		require(pid >= 0);
		if (pid == 0)
			execute("child", i + 1);
		work(i + 1);
		reap(pid);
	}
}

static void run_spawn(size_t count)
{
	hold();
	for (size_t i = 0; i < count; i++) {
		pid_t pid = spawn("child", i + 1);

		work(i + 1);
		reap(pid);
	}
}

/* In the memory of its parent, which waits, so its truth is the parent's. */
static int share(void *arg)
{
	size_t round = (size_t)arg;

	for (size_t i = 0; i < SHARED; i++) {
		block_free(&shared[i]);
		shared[i] = shared_block(300 * round + i);
	}
	for (size_t i = 0; i < SHARED; i++)
		block_free(&held[(SHARED * round + i) % HELD]);
	if (round % 2)
		execute("child", round);
	_exit(0);
}

/* Children with the parent's memory, of which every other one executes a program. */
static void run_share(size_t count)
{
	char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	require(stack != MAP_FAILED);
	hold();
	for (size_t i = 0; i < count; i++) {
		/* The parent sleeps in any case: in clone() or in waitpid(). */
		int flags = CLONE_VM | (i % 4 < 2 ? CLONE_VFORK : 0) | SIGCHLD;
		pid_t pid = clone(share, stack + STACK_SIZE, flags, (void *)i);

		require(pid > 0);
		reap(pid);
		work(i + 1);
	}
	for (size_t i = 0; i < SHARED; i += 2)
		block_free(&shared[i]);
}

/* What daemons do; this process ends before the daemon does. */
static void run_daemon(size_t number)
{
	int gate[2];
	pid_t pid;
	char byte;

	require(pipe2(gate, O_CLOEXEC) == 0);
	hold();
	pid = fork();
	require(pid >= 0);
	if (pid == 0) {
		inherit(1);
		require(setsid() > 0);
		pid = fork();
		require(pid >= 0);
		if (pid)
			end("middle");
		close(gate[1]);
		inherit(2);
		require(read(gate[0], &byte, 1) == 0);
		work(number);
		end("daemon");
	}
	reap(pid);
}

static void storm_child(size_t number)
{
	switch (number % 5) {
	case 0:
		write_truth("idle", false);
		_exit(0);
	case 1:
		work(number);
		end("short");
	case 2:
		work(number);
		write_truth("replaced", true);
		execute("child", number);
		break;
	case 3:
		work(number);
		write_truth("killed", false);
		kill(getpid(), SIGKILL);
		break;
	default:
		reap(spawn("child", number));
		end("spawning");
	}
}

/* Short children, some at a time. */
static void run_storm(size_t count)
{
	hold();
	for (size_t i = 0; i < count; i++) {
		pid_t pid = fork();

		require(pid >= 0);
		if (pid == 0) {
			inherit(1);
			storm_child(i);
		}
		if (i >= STORM_WIDTH)
			reap(-1);
	}
	for (size_t i = 0; i < STORM_WIDTH && i < count; i++)
		reap(-1);
}

/* A full binary tree of so many levels below this process, all alive at once. */
static void run_bomb(size_t levels)
{
	bool is_root = true;
	size_t children = 0;

	hold();
	while (levels > 0 && children < 2) {
		pid_t pid = fork();

		require(pid >= 0);
		children++;
		if (pid == 0) {
			inherit(levels--);
			is_root = false;
			children = 0;
		}
	}
	work(1);
	while (children--)
		reap(-1);
	if (!is_root)
		end("node");
}

/* Children one after another that all have one PID. */
static void run_reuse(size_t count)
{
	pid_t pid, wanted = 0;

	hold();
	for (size_t i = 0; i < count; i++) {
		struct clone_args args = {
			.exit_signal = SIGCHLD,
			.set_tid = wanted ? (uintptr_t)&wanted : 0,
			.set_tid_size = wanted != 0,
		};

		pid = syscall(SYS_clone3, &args, sizeof(args));
		require(pid >= 0);
		if (pid == 0) {
			inherit(i + 1);
			if (i % 3 == 2) {
				write_truth("reused", true);
				execute("child", i + 1);
			}
			end("reused");
		}
		require(wanted == 0 || pid == wanted);
		wanted = pid;
		reap(pid);
	}
}

static void *outlive(void *arg)
{
	pthread_join(*(pthread_t *)arg, NULL);
	for (size_t i = 1; i <= 50; i++)
		work(i);
	reap(spawn("child", 1));
	write_truth("threads", false);
	printf("done\n");
	fflush(stdout);
	truth_wait_line();
	_exit(0);
}

/* The first thread ends long before the process. */
static void run_leader(size_t number)
{
	static pthread_t leader;
	pthread_t thread;

	leader = pthread_self();
	work(number);
	require(pthread_create(&thread, NULL, outlive, &leader) == 0);
	pthread_exit(NULL);
}

static atomic_bool stopping;

static void *churn(void *arg)
{
	while (!stopping) {
		struct block block = shared_block((size_t)arg);

		block_free(&block);
	}
	return NULL;
}

/* Forks while other threads are inside malloc. */
static void run_threads(size_t count)
{
	pthread_t threads[4];

	hold();
	for (size_t i = 0; i < 4; i++)
		require(pthread_create(&threads[i], NULL, churn, (void *)(64 + i)) == 0);
	for (size_t i = 0; i < count; i++) {
		pid_t pid = fork();

		require(pid >= 0);
		if (pid == 0) {
			inherit(i + 1);
			end("child");
		}
		reap(pid);
	}
	stopping = true;
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/*
 * One child per line of stdin. Each allocates at once, and again when there is a file "again.PID".
 */
static void run_steps(size_t count)
{
	pid_t pids[64];

	hold();
	for (size_t i = 0; i < count && i < 64; i++) {
		truth_wait_line();
		work(i + 1);
		pids[i] = fork();
		require(pids[i] >= 0);
		if (pids[i] == 0) {
			const struct timespec pause = {.tv_nsec = 10000000};
			char path[32];

			inherit(1);
			snprintf(path, sizeof(path), "again.%d", getpid());
			while (access(path, F_OK))
				nanosleep(&pause, NULL);
			for (size_t n = 0; n < SHARED; n++)
				shared[n] = shared_block(700 + n);
			block_free(&shared[0]);
			end("step");
		}
		printf("child %d\n", pids[i]);
		fflush(stdout);
	}
	for (size_t i = 0; i < count && i < 64; i++)
		reap(pids[i]);
}

/* A child every 5 ms, at most so many, until there is a line on stdin; only then all allocate. */
static void run_brood(size_t count)
{
	struct pollfd line = {.fd = STDIN_FILENO, .events = POLLIN};
	size_t born = 0;
	int gate[2];

	require(pipe2(gate, O_CLOEXEC) == 0);
	printf("breeding\n");
	fflush(stdout);
	while (poll(&line, 1, born < count ? 5 : -1) == 0) {
		pid_t pid = fork();
		char byte;

		require(pid >= 0);
		if (pid == 0) {
			close(gate[1]);
			require(read(gate[0], &byte, 1) == 0);
			work(1);
			end("child");
		}
		born++;
	}
	truth_wait_line();
	close(gate[1]);
	while (born--)
		reap(-1);
}

/* Runs until SIGTERM comes, as a container's first process. */
static void run_pause(size_t number)
{
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	work(number);
	sigwait(&set, &signal);
	end("pausing");
}

static const struct {
	const char *name;
	void (*run)(size_t number);
	size_t number;
} commands[] = {
	{"child", run_child, 1},
	{"fork", run_fork, 8},
	{"forkexec", run_forkexec, 4},
	{"chain", run_chain, 5},
	{"threadexec", run_threadexec, 1},
	{"vfork", run_vfork, 4},
	{"spawn", run_spawn, 4},
	{"share", run_share, 8},
	{"daemon", run_daemon, 1},
	{"storm", run_storm, 200},
	{"bomb", run_bomb, 6},
	{"reuse", run_reuse, 10},
	{"leader", run_leader, 1},
	{"threads", run_threads, 10},
	{"steps", run_steps, 2},
	{"brood", run_brood, 1000},
	{"pause", run_pause, 1},
};

int main(int argc, char **argv)
{
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	require(length > 0);
	truth_start(&argc, argv);
	for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, argv[1]) != 0)
			continue;
		commands[i].run(argc > 2 ? strtoul(argv[2], NULL, 10) : commands[i].number);
		write_truth("parent", false);
		printf("done\n");
		fflush(stdout);
		truth_wait_line();
		_exit(0);
	}
	fprintf(stderr, "usage: procs [--wait] COMMAND [NUMBER]\n");
	return 2;
}
