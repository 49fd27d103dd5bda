/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What /proc tells about one process. */
#ifndef HEAPTAP_PROC_PROCESS_H
#define HEAPTAP_PROC_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid;
	char comm[17];
	bool kernel_thread;
	bool zombie;
	bool thread; /* pid names a thread that is not its group's leader */
	pid_t tgid;
	pid_t ns_tgid; /* as the process itself sees it, in its PID namespace */
	uid_t euid;
	unsigned int seccomp_mode;	/* 0 none, 1 strict, 2 filter */
	unsigned long long start_ticks; /* with the pid, the identity of the process */
};

/* Errors: -ESRCH if there is no such process, -EINVAL if its files are not understood. */
int process_read(pid_t pid, struct process *ret);

/* The part of it that /proc/PID/stat tells: comm, kernel_thread, zombie, start_ticks. */
int process_parse_stat(const char *text, struct process *ret);

/* In ns, to a clock tick. */
struct process_cpu {
	uint64_t used_ns;  /* all threads, and all children that it has waited for, and theirs */
	uint64_t start_ns; /* CLOCK_BOOTTIME */
	pid_t parent;
};

/* Errors: -ESRCH if there is no such process, -EINVAL. */
int process_cpu(pid_t pid, struct process_cpu *ret);
/* The same of the text of /proc/PID/stat. */
int process_parse_cpu(const char *text, struct process_cpu *ret);

/* The path of its program, without the mark of a deleted file. False, and "", if it is gone. */
bool process_exe(pid_t pid, char *path, size_t size);

/*
 * Reads an environment variable as it was when the process executed its program; what does not fit
 * into value is cut off. Errors: -ENOENT if it was not set, -ESRCH, -EACCES, -E2BIG if it is not
 * among the first 4 MiB.
 */
int process_variable(pid_t pid, const char *name, char *value, size_t size);

/*
 * Whether a seccomp filter may kill its process at a return probe. From 6.11 on x86-64 such a probe
 * returns through a system call of its own; before 6.14 filters saw it, and one that allows only
 * what it knows kills.
 */
bool process_seccomp_kills_return_probes(void);

/* Its PID in the innermost PID namespace that it is in, or 0 if it is gone. */
pid_t process_inner_pid(pid_t pid);

#endif
