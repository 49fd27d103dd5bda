/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "cpu_times.h"

#include <errno.h>
#include <stdlib.h>

#include "proc/process.h"
#include "util/clock.h"

struct user {
	pid_t pid;
	struct process_cpu last;
};

struct cpu_times {
	struct user *users; /* at the last update, by PID */
	size_t count;
	int64_t total_ns;
	uint64_t first_ns; /* CLOCK_BOOTTIME of the first update */
};

int cpu_times_new(struct cpu_times **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void cpu_times_free(struct cpu_times *times)
{
	if (!times)
		return;
	free(times->users);
	free(times);
}

static int by_pid(const void *a, const void *b)
{
	const struct user *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static const struct user *find(const struct user *users, size_t count, pid_t pid)
{
	const struct user key = {.pid = pid};

	return count ? bsearch(&key, users, count, sizeof(*users), by_pid) : NULL;
}

static size_t look(const struct snapshot_process *processes, size_t count, struct user *users)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++) {
		struct user *user = &users[found];

		user->pid = processes[i].pid;
		if (!processes[i].left && user->pid && !process_cpu(user->pid, &user->last))
			found++;
	}
	qsort(users, found, sizeof(*users), by_pid);
	return found;
}

static void add_new(struct cpu_times *times, const struct user *users, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct user *user = &users[i];
		const struct user *old = find(times->users, times->count, user->pid);

		/* Right after an exec it may be there under both of its serials. */
		if (i && users[i - 1].pid == user->pid)
			continue;
		if (old && user->last.used_ns >= old->last.used_ns)
			times->total_ns += user->last.used_ns - old->last.used_ns;
		else if (!old && times->first_ns && user->last.start_ns >= times->first_ns)
			times->total_ns += user->last.used_ns;
	}
}

/* What one has taken that is gone stands in its parent's time now, if the parent is here. */
static void take_gone(struct cpu_times *times, const struct user *users, size_t count)
{
	for (size_t i = 0; i < times->count; i++) {
		const struct user *old = &times->users[i];
		int64_t counted_ns = old->last.used_ns;

		if (find(users, count, old->pid) || !find(users, count, old->last.parent))
			continue;
		times->total_ns -= counted_ns;
	}
}

int cpu_times_update(struct cpu_times *times, const struct snapshot_process *processes,
		     size_t count)
{
	struct user *users = calloc(count + 1, sizeof(*users));

	if (!users)
		return -ENOMEM;
	count = look(processes, count, users);
	add_new(times, users, count);
	take_gone(times, users, count);
	free(times->users);
	times->users = users;
	times->count = count;
	if (!times->first_ns)
		times->first_ns = clock_ns(CLOCK_BOOTTIME);
	return 0;
}

uint64_t cpu_times_ns(const struct cpu_times *times)
{
	return times->total_ns > 0 ? times->total_ns : 0;
}
