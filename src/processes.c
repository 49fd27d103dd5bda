/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "processes.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "copies.h"
#include "proc/process.h"
#include "profile/intern.h"
#include "util/clock.h"
#include "util/printable.h"

/* Processes that have left and are kept apart. */
#define MAX_LEFT 1024

/* Names and cgroups that those are added up under; what comes after that is one. */
#define MAX_SUMS    1024
#define OTHERS_COMM "(others)"

/* The live table is searched for what those left who are gone so often, or when it is so much. */
#define PURGE_PAUSE_NS 1000000000ull
#define PURGE_RECORDS  8192

/* How often they are looked at that come and go, and that it takes half a percent of a CPU. */
#define PAUSE_MIN_NS 50000000ull
#define PAUSE_MAX_NS 1000000000ull
#define PAUSE_FACTOR 200

/* Serials that the kernel side never gives, for those that are added up by name. */
#define FIRST_SUM (1u << 31)

/* Beside the snapshot_process of the same index. */
struct state {
	uint64_t cgroup_id;
	uint64_t start_ns;
	uint64_t gone_ns; /* CLOCK_MONOTONIC, 0: it is there */
	bool last;	  /* nobody was left */
	bool executed;	  /* it goes on under another serial */
	bool settled;
	bool taken;	/* by processes_take() */
	bool forgotten; /* by the kernel side */
	uint32_t into;	/* the serial that it is added up under, or 0 */
};

struct processes {
	struct kernel *kernel;
	struct copies *copies;	       /* NULL: forked children get none */
	struct snapshot_process *list; /* by serial */
	struct state *states;
	size_t count;
	size_t capacity;
	uint32_t next_sum;
	struct cgroup_names *cgroups;
	struct intern *programs; /* paths */
	const char *container;	 /* of all, or NULL */
	bool left;		 /* since the last update */
	uint64_t left_records;	 /* in the live table, of those who left since it was searched */
	uint64_t purged_ns;
	uint64_t pause_ns;
	size_t unsettled; /* who left */
};

int processes_new(struct kernel *kernel, struct cgroup_names *cgroups, const char *container,
		  struct processes **ret)
{
	struct processes *processes CLEANUP(processes) = calloc(1, sizeof(*processes));
	int err;

	if (!processes)
		return -ENOMEM;
	err = intern_new(&processes->programs);
	if (err)
		return err;
	processes->kernel = kernel;
	processes->next_sum = FIRST_SUM;
	processes->cgroups = cgroups;
	processes->container = container;
	*ret = take_ptr(processes);
	return 0;
}

void processes_free(struct processes *processes)
{
	if (!processes)
		return;
	copies_free(processes->copies);
	intern_free(processes->programs);
	free(processes->list);
	free(processes->states);
	free(processes);
}

int processes_copy_forks(struct processes *processes, bool split)
{
	return copies_new(processes->kernel, split, &processes->copies);
}

int processes_inherit(struct processes *processes, struct heap *heap, struct epoch_record *record)
{
	return processes->copies ? copies_inherit(processes->copies, heap, record) : 0;
}

/* Where a serial is, or would be. */
static size_t place_of(const struct processes *processes, uint32_t serial)
{
	size_t low = 0, high = processes->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (processes->list[middle].serial < serial)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_known(const struct processes *processes, uint32_t serial)
{
	size_t at = place_of(processes, serial);

	return at < processes->count && processes->list[at].serial == serial;
}

static int reserve(struct processes *processes)
{
	size_t capacity = processes->capacity ? 2 * processes->capacity : 64;
	struct snapshot_process *list;
	struct state *states;

	if (processes->count < processes->capacity)
		return 0;
	list = reallocarray(processes->list, capacity, sizeof(*list));
	if (list)
		processes->list = list;
	states = reallocarray(processes->states, capacity, sizeof(*states));
	if (states)
		processes->states = states;
	if (!list || !states)
		return -ENOMEM;
	processes->capacity = capacity;
	return 0;
}

static int insert(struct processes *processes, const struct snapshot_process *process)
{
	size_t at = place_of(processes, process->serial), behind = processes->count - at;
	int err = reserve(processes);

	if (err)
		return err;
	memmove(&processes->list[at + 1], &processes->list[at], behind * sizeof(*processes->list));
	memmove(&processes->states[at + 1], &processes->states[at],
		behind * sizeof(*processes->states));
	processes->list[at] = *process;
	processes->states[at] = (struct state){};
	processes->count++;
	return 0;
}

static void find_cgroup(const struct processes *processes, struct snapshot_process *process,
			uint64_t cgroup_id)
{
	struct cgroup_name name = cgroup_names_find(processes->cgroups, cgroup_id, process->pid);

	process->cgroup = name.path;
	process->container = processes->container ? processes->container : name.container;
}

/* NULL if it is gone, or without memory for it. */
static const char *find_program(const struct processes *processes, pid_t pid)
{
	char path[PATH_MAX];
	uint32_t number;

	if (!process_exe(pid, path, sizeof(path)) ||
	    intern_add(processes->programs, path, strlen(path), &number) < 0)
		return NULL;
	return intern_bytes(processes->programs, number, NULL);
}

static int see(void *arg, __u32 serial, const struct process_info *info)
{
	struct processes *processes = arg;
	struct snapshot_process *process;
	struct state *state;
	size_t at;

	if (!is_known(processes, serial)) {
		struct snapshot_process added = {
			.serial = serial,
			.pid = info->tgid,
			.inner_pid = info->inner_tgid != info->tgid ? info->inner_tgid : 0,
		};
		int err;

		find_cgroup(processes, &added, info->cgroup_id);
		/* By now that of one that has executed another is gone. */
		if (!info->gone)
			added.program = find_program(processes, info->tgid);
		err = insert(processes, &added);
		if (err)
			return err;
		at = place_of(processes, serial);
		processes->states[at].cgroup_id = info->cgroup_id;
		processes->states[at].start_ns = info->start_ns;
	}
	at = place_of(processes, serial);
	process = &processes->list[at];
	state = &processes->states[at];
	snprintf(process->comm, sizeof(process->comm), "%.16s", info->comm);
	printable(process->comm);
	if (state->cgroup_id != info->cgroup_id) {
		state->cgroup_id = info->cgroup_id;
		find_cgroup(processes, process, info->cgroup_id);
	}
	/* Its records are needed until its children have their copies of them. */
	if (!info->gone || state->gone_ns || info->fork || info->copies)
		return 0;
	state->gone_ns = info->gone_ns;
	state->last = info->last;
	state->executed = info->gone == PROCESS_EXECUTED;
	process->left = !state->executed;
	processes->left = true;
	processes->unsettled++;
	/* Where one alone is profiled they are not counted. */
	processes->left_records += info->live ? info->live : 1;
	return 0;
}

/* The last one's blocks stay: they are in use as its snapshot says. */
static bool is_gone(void *arg, __u32 serial)
{
	const struct processes *processes = arg;
	size_t at = place_of(processes, serial);

	return at < processes->count && processes->list[at].serial == serial &&
	       processes->states[at].gone_ns && !processes->states[at].last;
}

static int update(struct processes *processes)
{
	int err = processes->copies ? copies_make(processes->copies) : 0;

	if (!err)
		err = kernel_read_processes(processes->kernel, see, processes);
	if (err || !processes->left)
		return err;
	processes->left = false;
	for (size_t i = 0; i < processes->count; i++) {
		struct state *state = &processes->states[i];

		if (!state->gone_ns || state->forgotten)
			continue;
		kernel_forget_process(processes->kernel, processes->list[i].serial);
		state->forgotten = true;
	}
	return 0;
}

static int purge(struct processes *processes)
{
	if (!processes->left_records)
		return 0;
	processes->left_records = 0;
	processes->purged_ns = clock_ns(CLOCK_MONOTONIC);
	return kernel_purge(processes->kernel, is_gone, processes);
}

uint64_t processes_pause_ns(const struct processes *processes)
{
	return processes->pause_ns;
}

int processes_update(struct processes *processes)
{
	uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int err = update(processes);
	uint64_t pause_ns = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) * PAUSE_FACTOR;

	processes->pause_ns = pause_ns < PAUSE_MIN_NS	? PAUSE_MIN_NS
			      : pause_ns > PAUSE_MAX_NS ? PAUSE_MAX_NS
							: pause_ns;

	if (err || (processes->left_records < PURGE_RECORDS &&
		    clock_ns(CLOCK_MONOTONIC) - processes->purged_ns < PURGE_PAUSE_NS))
		return err;
	return purge(processes);
}

int processes_purge(struct processes *processes)
{
	int err = update(processes);

	return err ? err : purge(processes);
}

uint64_t processes_purge_due_ns(const struct processes *processes)
{
	return processes->left_records ? processes->purged_ns + PURGE_PAUSE_NS : 0;
}

bool processes_are_many(const struct processes *processes)
{
	return processes->unsettled > MAX_LEFT;
}

const struct snapshot_process *processes_list(const struct processes *processes, size_t *ret_count)
{
	*ret_count = processes->count;
	return processes->list;
}

const struct snapshot_process *processes_find(const struct processes *processes, uint32_t serial,
					      size_t *ret_index)
{
	*ret_index = place_of(processes, serial);
	return is_known(processes, serial) ? &processes->list[*ret_index] : NULL;
}

struct process_life processes_life(const struct processes *processes, size_t index)
{
	return (struct process_life){
		.start_ns = processes->states[index].start_ns,
		.gone_ns = processes->states[index].gone_ns,
		.last = processes->states[index].last,
		.executed = processes->states[index].executed,
	};
}

bool processes_is_new(const struct processes *processes, size_t index)
{
	return !processes->states[index].taken;
}

void processes_take(struct processes *processes, size_t index)
{
	processes->states[index].taken = true;
}

bool processes_only_one(const struct processes *processes)
{
	for (size_t i = 0; i < processes->count; i++)
		if (processes->list[i].pid != processes->list[0].pid)
			return false;
	return processes->count > 0;
}

static bool has_left(const struct state *state, uint64_t time_ns)
{
	return state->gone_ns && state->gone_ns <= time_ns;
}

bool processes_any_since(const struct processes *processes, uint64_t time_ns)
{
	for (size_t i = 0; i < processes->count; i++)
		if (!has_left(&processes->states[i], time_ns))
			return true;
	return false;
}

bool processes_any_left(const struct processes *processes)
{
	for (size_t i = 0; i < processes->count; i++) {
		const struct state *state = &processes->states[i];

		if (state->gone_ns && !state->settled && !state->last && !state->executed)
			return true;
	}
	return false;
}

struct ending {
	const struct processes *processes;
	uint64_t time_ns;
	bool executed_only;
};

static bool ends(void *arg, uint32_t serial)
{
	const struct ending *ending = arg;
	const struct processes *processes = ending->processes;
	size_t at = place_of(processes, serial);

	return at < processes->count && processes->list[at].serial == serial &&
	       has_left(&processes->states[at], ending->time_ns) && !processes->states[at].last &&
	       (processes->states[at].executed || !ending->executed_only);
}

static uint32_t sum_of(void *arg, uint32_t serial)
{
	const struct processes *processes = arg;
	size_t at = place_of(processes, serial);

	if (at < processes->count && processes->list[at].serial == serial &&
	    processes->states[at].into)
		return processes->states[at].into;
	return serial;
}

/* The serial under which processes of a name and cgroup are added up; 0 without memory for it. */
static uint32_t sum_by_name(struct processes *processes, const struct snapshot_process *process)
{
	struct snapshot_process sum = {.serial = processes->next_sum};

	size_t first = place_of(processes, FIRST_SUM);

	for (size_t i = first; i < processes->count; i++)
		if (!strcmp(processes->list[i].comm, process->comm) &&
		    !strcmp(processes->list[i].cgroup, process->cgroup))
			return processes->list[i].serial;
	/* The last of them takes in the rest. */
	if (processes->count - first >= MAX_SUMS)
		return processes->list[processes->count - 1].serial;
	if (processes->count - first == MAX_SUMS - 1) {
		memcpy(sum.comm, OTHERS_COMM, sizeof(OTHERS_COMM));
		sum.container = sum.cgroup = "";
	} else {
		memcpy(sum.comm, process->comm, sizeof(sum.comm));
		sum.container = process->container;
		sum.cgroup = process->cgroup;
	}
	if (insert(processes, &sum))
		return 0;
	return processes->next_sum++;
}

/* Adds the oldest up that have left, down to half of what is kept. */
static int add_up(struct processes *processes, struct heap *heap)
{
	size_t settled = 0, kept = 0;
	int err;

	for (size_t i = 0; i < processes->count; i++)
		settled += processes->states[i].settled;
	if (settled <= MAX_LEFT)
		return 0;
	for (size_t i = 0; i < processes->count && settled > MAX_LEFT / 2; i++) {
		struct snapshot_process process = processes->list[i];

		if (!processes->states[i].settled)
			continue;
		/* It may move the others, but only those behind. */
		processes->states[i].into = sum_by_name(processes, &process);
		settled--;
	}
	err = heap_merge(heap, sum_of, processes);
	for (size_t i = 0; i < processes->count; i++) {
		if (processes->states[i].into)
			continue;
		processes->list[kept] = processes->list[i];
		processes->states[kept++] = processes->states[i];
	}
	processes->count = kept;
	return err;
}

static void forget_stack(void *arg, uint64_t id)
{
	kernel_forget_stack(arg, id);
}

int processes_settle(struct processes *processes, struct heap *heap, uint64_t time_ns,
		     bool executed_only)
{
	struct ending ending = {processes, time_ns, executed_only};
	bool any = false;

	for (size_t i = 0; i < processes->count; i++) {
		if (!processes->states[i].settled && ends(&ending, processes->list[i].serial))
			any = true;
	}
	if (!any)
		return 0;
	heap_end(heap, ends, &ending);
	heap_leave_stacks(heap, ends, &ending, forget_stack, processes->kernel);
	processes->unsettled = 0;
	for (size_t i = 0; i < processes->count; i++) {
		processes->states[i].settled |= ends(&ending, processes->list[i].serial);
		processes->unsettled +=
			processes->states[i].gone_ns && !processes->states[i].settled;
		processes->list[i].done = processes->list[i].left && processes->states[i].settled;
	}
	return add_up(processes, heap);
}
