/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * /proc/PID/stat and /proc/PID/status.
 *
 * stat is "PID (COMM) STATE PPID ...", and COMM may hold anything, parentheses and line ends
 * included: the fields are counted from the last parenthesis.
 */
#include "proc/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "util/cleanup.h"
#include "util/printable.h"
#include "util/text_file.h"

/* include/linux/sched.h; stat shows the kernel's own flag word. */
#define PF_KTHREAD 0x00200000

/* The kernel allows a quarter of the stack's limit, which is 2 MiB mostly. */
#define ENVIRONMENT_MAX_SIZE (4u << 20)

/* Both files are below 2 KiB but for the group and CPU lists of status. */
#define FILE_MAX_SIZE (1u << 20)

static int read_file(pid_t pid, const char *name, char **ret)
{
	char path[64];
	int err;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	err = text_file_read(path, FILE_MAX_SIZE, ret, NULL);
	return err == -ENOENT ? -ESRCH : err;
}

int process_parse_stat(const char *text, struct process *ret)
{
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	unsigned int flags;
	size_t length;
	char state;

	if (!open || !close || close < open)
		return -EINVAL;
	/* Fields 3 state, 9 flags, 22 starttime. */
	if (sscanf(close + 1,
		   " %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &state, &flags, &ret->start_ticks) != 3)
		return -EINVAL;
	/* Kernel threads may show more than a comm's 16 bytes. */
	length = close - open - 1;
	if (length >= sizeof(ret->comm))
		length = sizeof(ret->comm) - 1;
	memcpy(ret->comm, open + 1, length);
	ret->comm[length] = 0;
	printable(ret->comm);
	ret->kernel_thread = flags & PF_KTHREAD;
	ret->zombie = state == 'Z' || state == 'X' || state == 'x';
	return 0;
}

int process_parse_cpu(const char *text, struct process_cpu *ret)
{
	const char *close = strrchr(text, ')');
	uint64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
	unsigned long long user, system, children_user, children_system, start;

	/* Fields 4 ppid, 14 to 17 times, 22 starttime. */
	if (!close ||
	    sscanf(close + 1,
		   " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu %*d "
		   "%*d %*d %*d %llu",
		   &ret->parent, &user, &system, &children_user, &children_system, &start) != 6)
		return -EINVAL;
	ret->used_ns = (user + system + children_user + children_system) * tick_ns;
	ret->start_ns = start * tick_ns;
	return 0;
}

int process_cpu(pid_t pid, struct process_cpu *ret)
{
	char *stat _cleanup_free_ = NULL;
	int err = read_file(pid, "stat", &stat);

	return err ? err : process_parse_cpu(stat, ret);
}

/* The number after "\nKEY:", which no comm can imitate: status escapes line ends. */
static int status_number(const char *text, const char *key, int *ret)
{
	const char *pos = strstr(text, key);

	return pos && sscanf(pos + strlen(key), "%d", ret) == 1 ? 0 : -EINVAL;
}

/* The last number of "\nNStgid:", which lists the namespaces from ours inwards. */
static pid_t status_ns_tgid(const char *text, pid_t tgid)
{
	static const char key[] = "\nNStgid:";
	const char *pos = strstr(text, key);
	pid_t last = tgid;
	int number, length;

	for (pos = pos ? pos + strlen(key) : ""; sscanf(pos, "%*[ \t]%d%n", &number, &length) == 1;
	     pos += length)
		last = number;
	return last;
}

/* "\nUid:" and the real, effective, saved and file system ids. */
static uid_t status_euid(const char *text)
{
	static const char key[] = "\nUid:";
	const char *pos = strstr(text, key);
	unsigned int euid;

	return pos && sscanf(pos + strlen(key), "%*u %u", &euid) == 1 ? euid : (uid_t)-1;
}

int process_read(pid_t pid, struct process *ret)
{
	char *stat _cleanup_free_ = NULL, *status _cleanup_free_ = NULL;
	struct process process = {.pid = pid};
	int err, seccomp;

	if (pid <= 0)
		return -ESRCH;
	err = read_file(pid, "stat", &stat);
	if (!err)
		err = read_file(pid, "status", &status);
	if (!err)
		err = process_parse_stat(stat, &process);
	if (!err)
		err = status_number(status, "\nTgid:", &process.tgid);
	if (err)
		return err;
	process.thread = process.tgid != pid;
	process.euid = status_euid(status);
	process.ns_tgid = status_ns_tgid(status, process.tgid);
	/* Missing in kernels without seccomp. */
	if (!status_number(status, "\nSeccomp:", &seccomp))
		process.seccomp_mode = seccomp;
	*ret = process;
	return 0;
}

bool process_exe(pid_t pid, char *path, size_t size)
{
	static const char deleted[] = " (deleted)";
	char link[64];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	length = readlink(link, path, size - 1);
	if (length < 0) {
		path[0] = '\0';
		return false;
	}
	path[length] = '\0';
	if (length > (ssize_t)sizeof(deleted) - 1 &&
	    !strcmp(path + length - (sizeof(deleted) - 1), deleted))
		path[length - (sizeof(deleted) - 1)] = '\0';
	return true;
}

int process_variable(pid_t pid, const char *name, char *value, size_t size)
{
	_cleanup_fclose_ FILE *file = NULL;
	_cleanup_free_ char *entry = NULL;
	size_t length = strlen(name), capacity = 0, total = 0;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	file = fopen(path, "re");
	if (!file)
		return errno == ENOENT ? -ESRCH : -errno;
	while ((n = getdelim(&entry, &capacity, 0, file)) > 0) {
		if (!strncmp(entry, name, length) && entry[length] == '=') {
			snprintf(value, size, "%s", entry + length + 1);
			return 0;
		}
		total += n;
		if (total > ENVIRONMENT_MAX_SIZE)
			return -E2BIG;
	}
	return -ENOENT;
}

bool process_seccomp_kills_return_probes(void)
{
	unsigned int major, minor;
	struct utsname name;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2)
		return false;
	return major == 6 && minor >= 11 && minor < 14;
}

pid_t process_inner_pid(pid_t pid)
{
	_cleanup_fclose_ FILE *file = NULL;
	char path[64], line[512];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		/* From the outermost namespace to the innermost. */
		const char *last = strrchr(line, '\t');

		if (!strncmp(line, "NSpid:", 6) && last)
			return (pid_t)strtol(last + 1, NULL, 10);
	}
	return 0;
}
