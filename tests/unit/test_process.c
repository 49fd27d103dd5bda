/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* process: ourselves, odd names, zombies, kernel threads, threads. */
#include "elf_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "proc/process.h"

static void test_self(void **state)
{
	struct process process = {}, again = {};

	assert_int_equal(prctl(PR_SET_NAME, "a) Z (1 \nX"), 0);
	assert_int_equal(process_read(getpid(), &process), 0);
	assert_int_equal(process.pid, getpid());
	assert_int_equal(process.tgid, getpid());
	assert_string_equal(process.comm, "a) Z (1 ?X");
	assert_false(process.zombie);
	assert_false(process.kernel_thread);
	assert_false(process.thread);
	assert_in_range(process.seccomp_mode, 0, 2);
	assert_int_not_equal(process.start_ticks, 0);
	assert_int_equal(process_read(getpid(), &again), 0);
	assert_int_equal(process.start_ticks, again.start_ticks);
}

static void test_zombie(void **state)
{
	struct process process = {};
	siginfo_t info;
	pid_t child = fork();

	if (!child)
		_exit(0);
	assert_int_equal(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(process_read(child, &process), 0);
	assert_true(process.zombie);
	assert_false(process.kernel_thread);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(process_read(child, &process), -ESRCH);
}

static void test_kernel_thread(void **state)
{
	struct process process = {};

	/* PID 2 is kthreadd, but not in a PID namespace of our own. */
	if (process_read(2, &process) || strcmp(process.comm, "kthreadd"))
		skip();
	assert_true(process.kernel_thread);
}

static void *read_own_thread(void *arg)
{
	assert_int_equal(process_read(syscall(SYS_gettid), arg), 0);
	return NULL;
}

static void test_thread(void **state)
{
	struct process process = {};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, read_own_thread, &process), 0);
	pthread_join(thread, NULL);
	assert_true(process.thread);
	assert_int_equal(process.tgid, getpid());
}

static void test_seccomp(void **state)
{
	struct process process = {};
	int ready[2], status;
	char byte;
	pid_t child;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		/* Strict mode allows read, write and exit. */
		if (prctl(PR_SET_SECCOMP, 1))
			syscall(SYS_exit, 77);
		if (write(ready[1], "r", 1) == 1)
			for (;;)
				;
		syscall(SYS_exit, 1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1) {
		assert_int_equal(process_read(child, &process), 0);
		kill(child, SIGKILL);
	}
	close(ready[0]);
	waitpid(child, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(process.seccomp_mode, 1);
}

static void test_no_process(void **state)
{
	struct process process = {.pid = 1234};

	assert_int_equal(process_read(0x7ffffffe, &process), -ESRCH);
	assert_int_equal(process_read(0, &process), -ESRCH);
	assert_int_equal(process_read(-1, &process), -ESRCH);
	assert_int_equal(process.pid, 1234);
}

static void test_stat(void **state)
{
	struct process process = {};

	assert_int_equal(process_parse_stat(
				 "7 (kworker/u8:2-long_workqueue) I 2 0 0 0 -1 69238880 0 0 0 0 0 "
				 "0 0 0 20 0 1 0 99 0 0",
				 &process),
			 0);
	assert_string_equal(process.comm, "kworker/u8:2-lon");
	assert_true(process.kernel_thread);
	assert_int_equal(process.start_ticks, 99);
	assert_int_equal(
		process_parse_stat("7 (dead) X 2 0 0 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 99", &process),
		0);
	assert_true(process.zombie);
	assert_false(process.kernel_thread);
	assert_int_equal(process_parse_stat("", &process), -EINVAL);
	assert_int_equal(process_parse_stat("7 (x", &process), -EINVAL);
	assert_int_equal(process_parse_stat(")7 (x", &process), -EINVAL);
	assert_int_equal(process_parse_stat("7 (x) R 1 2", &process), -EINVAL);
}

static void test_cpu(void **state)
{
	uint64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
	struct process_cpu cpu;

	assert_int_equal(process_parse_cpu("7 (a) b) S 5 7 7 0 -1 64 1 2 3 4 10 20 300 400 20 0 "
					   "1 0 99 0",
					   &cpu),
			 0);
	assert_int_equal(cpu.parent, 5);
	assert_int_equal(cpu.used_ns, 730 * tick_ns);
	assert_int_equal(cpu.start_ns, 99 * tick_ns);
	assert_int_equal(process_parse_cpu("7 (x) R 1 2", &cpu), -EINVAL);
	assert_int_equal(process_parse_cpu("", &cpu), -EINVAL);
	assert_int_equal(process_cpu(getpid(), &cpu), 0);
	assert_int_equal(cpu.parent, getppid());
	assert_int_equal(process_cpu(4194305, &cpu), -ESRCH);
}

static void test_variable(void **state)
{
	char *const argv[] = {"cat", NULL};
	char *const environment[] = {"NAMED=wrong", "NAME=the value", "EMPTY=", NULL};
	char value[32] = "", byte = 0;
	int in[2], out[2];
	pid_t child;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		execve("/bin/cat", argv, environment);
		_exit(1);
	}
	/* Its answer says that it runs: before, an exec may have no environment yet. */
	assert_int_equal(write(in[1], "x", 1), 1);
	close(out[1]);
	assert_int_equal(read(out[0], &byte, 1), 1);
	assert_int_equal(process_variable(child, "NAME", value, sizeof(value)), 0);
	assert_string_equal(value, "the value");
	assert_int_equal(process_variable(child, "NAME", value, 4), 0);
	assert_string_equal(value, "the");
	assert_int_equal(process_variable(child, "EMPTY", value, sizeof(value)), 0);
	assert_string_equal(value, "");
	assert_int_equal(process_variable(child, "NAM", value, sizeof(value)), -ENOENT);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(in[0]);
	close(in[1]);
	close(out[0]);
	assert_int_equal(process_variable(child, "NAME", value, sizeof(value)), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self),	      cmocka_unit_test(test_zombie),
		cmocka_unit_test(test_kernel_thread), cmocka_unit_test(test_thread),
		cmocka_unit_test(test_seccomp),	      cmocka_unit_test(test_no_process),
		cmocka_unit_test(test_stat),	      cmocka_unit_test(test_cpu),
		cmocka_unit_test(test_variable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
