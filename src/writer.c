/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "writer.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "refresh.h"
#include "util/clock.h"
#include "util/limits.h"
#include "util/log.h"

/* Snapshots that may wait, each with its copy of the heap's sums. */
#define MAX_WAITING 32

struct job {
	struct job *next;
	struct snapshot_input input;
	struct heap *heap;
	struct snapshot_process *processes;
	struct loss_counter losses[LOSS_COUNT];
	char scope[256];
	char reason[128];
};

struct writer {
	struct writer_context context;
	pthread_t thread;
	pthread_mutex_t naming; /* held while the symbolizer is in use */
	struct refresh refresh;
	pthread_mutex_t queue; /* guards what follows */
	pthread_cond_t changed;
	struct job *first, **last;
	unsigned int waiting; /* the one in work included */
	bool stopping;
	bool failed;
};

static void job_free(struct job *job)
{
	if (!job)
		return;
	heap_free(job->heap);
	free(job->processes);
	free(job);
}
DEFINE_CLEANUP(job, struct job *, job_free)

/* The one whose files are searched for the names of all, see symbolizer_refresh(). */
static pid_t first_running(const struct job *job)
{
	for (size_t i = 0; i < job->input.process_count; i++)
		if (job->processes[i].pid && !job->processes[i].left)
			return job->processes[i].pid;
	return 0;
}

static int refresh(struct writer *writer, const struct job *job)
{
	pid_t pids[REFRESH_MAX], first = first_running(job);
	int count = refresh_choose(&writer->refresh, &job->input, pids), err = 0;

	if (count < 0)
		return count;
	for (int i = 0; i < count && !err; i++)
		err = symbolizer_refresh(writer->context.symbolizer, pids[i]);
	if (first && !err)
		err = symbolizer_refresh(writer->context.symbolizer, first);
	return err;
}

/* Of one process, whose part of the heap the input has, or of all (0). */
static bool write_profile(struct writer *writer, struct job *job, pid_t pid)
{
	struct profile *profile CLEANUP(profile) = NULL;
	int err;

	/* A process that has not allocated has no files. */
	if (pid && !heap_sites(job->input.heap))
		return true;
	job->input.only_pid = pid;
	pthread_mutex_lock(&writer->naming);
	err = snapshot_build(&job->input, &profile);
	pthread_mutex_unlock(&writer->naming);
	if (err) {
		log_error(err, "cannot make the snapshot '%s'", job->reason);
		return false;
	}
	if (pid && !profile->sample_count)
		return true;
	return !snapshots_write(writer->context.snapshots, pid, profile, job->reason);
}

/* A process that has files of its own, whatever programs it has executed. */
struct series {
	pid_t pid;
	bool left;
	bool done;
	const char *program; /* the last one, or NULL */
};

struct division {
	const struct snapshot_input *input;
	struct series *series; /* by pid */
	size_t count;
};

static void cleanup_division(struct division *division)
{
	free(division->series);
}

static int by_pid(const void *a, const void *b)
{
	const struct series *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static struct series *find_series(const struct division *division, pid_t pid)
{
	const struct series wanted = {.pid = pid};

	return bsearch(&wanted, division->series, division->count, sizeof(wanted), by_pid);
}

static int list_series(struct division *division)
{
	const struct snapshot_input *input = division->input;
	size_t unique = 0;

	division->series = calloc(input->process_count + 1, sizeof(*division->series));
	if (!division->series)
		return -ENOMEM;
	for (size_t i = 0; i < input->process_count; i++)
		if (input->processes[i].pid)
			division->series[division->count++].pid = input->processes[i].pid;
	qsort(division->series, division->count, sizeof(*division->series), by_pid);
	for (size_t i = 0; i < division->count; i++)
		if (!i || division->series[i].pid != division->series[i - 1].pid)
			division->series[unique++].pid = division->series[i].pid;
	division->count = unique;
	for (size_t i = 0; i < input->process_count; i++) {
		const struct snapshot_process *process = &input->processes[i];
		struct series *series = find_series(division, process->pid);

		if (!series)
			continue;
		series->left |= process->left;
		series->done |= process->done;
		series->program = process->program;
	}
	return 0;
}

static size_t series_of(void *arg, uint32_t serial)
{
	const struct division *division = arg;
	const struct snapshot_process *process = snapshot_find_process(division->input, serial);
	const struct series *series = process ? find_series(division, process->pid) : NULL;

	return series ? (size_t)(series - division->series) : division->count;
}

/* A file for each process that is to have one now. */
static bool write_each(struct writer *writer, struct job *job)
{
	struct division division CLEANUP(division) = {.input = &job->input};
	bool written = true;
	int err = list_series(&division);

	if (!err)
		err = heap_divide(job->heap, division.count, series_of, &division);
	if (err) {
		log_error(err, "cannot make the snapshot '%s'", job->reason);
		return false;
	}
	for (size_t i = 0; i < division.count; i++) {
		const struct series *series = &division.series[i];

		if (series->done || (job->input.only_left && !series->left))
			continue;
		job->input.heap = heap_part(job->heap, i);
		job->input.program = series->program;
		written &= write_profile(writer, job, series->pid);
	}
	return written;
}

/* Whether the snapshot was written. Prints its errors. */
static bool write_job(struct writer *writer, struct job *job)
{
	int err;

	pthread_mutex_lock(&writer->naming);
	err = refresh(writer, job);
	pthread_mutex_unlock(&writer->naming);
	if (err) {
		log_error(err, "cannot make the snapshot '%s'", job->reason);
		return false;
	}
	return writer->context.split ? write_each(writer, job) : write_profile(writer, job, 0);
}

/* Whether a process may still be in the next snapshot. */
static bool has_process(void *arg, pid_t pid)
{
	const struct job *job = arg;

	for (size_t i = 0; i < job->input.process_count; i++)
		if (job->processes[i].pid == pid)
			return true;
	return false;
}

static void *run(void *arg)
{
	struct writer *writer = arg;
	uint64_t cpu_ns;
	size_t sites;
	bool written;

	limits_background();
	pthread_mutex_lock(&writer->queue);
	while (writer->first || !writer->stopping) {
		struct job *job = writer->first;

		if (!job) {
			pthread_cond_wait(&writer->changed, &writer->queue);
			continue;
		}
		writer->first = job->next;
		if (!writer->first)
			writer->last = &writer->first;
		pthread_mutex_unlock(&writer->queue);
		cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		sites = heap_site_count(job->heap);
		written = write_job(writer, job);
		log_verbose("Snapshot: %zu sites, written after %" PRIu64 " ms, %" PRIu64
			    " ms of CPU",
			    sites, (clock_ns(CLOCK_REALTIME) - job->input.time_ns) / 1000000,
			    (clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns) / 1000000);
		pthread_mutex_lock(&writer->naming);
		symbolizer_trim(writer->context.symbolizer, has_process, job);
		pthread_mutex_unlock(&writer->naming);
		job_free(job);
		/* What naming has freed lies between what it keeps. */
		malloc_trim(0);
		pthread_mutex_lock(&writer->queue);
		writer->failed |= !written;
		writer->waiting--;
		pthread_cond_broadcast(&writer->changed);
	}
	pthread_mutex_unlock(&writer->queue);
	return NULL;
}

int writer_new(const struct writer_context *context, struct writer **ret)
{
	struct writer *writer = calloc(1, sizeof(*writer));
	int err;

	if (!writer)
		return -ENOMEM;
	writer->context = *context;
	writer->last = &writer->first;
	pthread_mutex_init(&writer->naming, NULL);
	pthread_mutex_init(&writer->queue, NULL);
	pthread_cond_init(&writer->changed, NULL);
	err = pthread_create(&writer->thread, NULL, run, writer);
	if (err) {
		free(writer);
		return -err;
	}
	pthread_setname_np(writer->thread, "writer");
	*ret = writer;
	return 0;
}

void writer_free(struct writer *writer)
{
	if (!writer)
		return;
	pthread_mutex_lock(&writer->queue);
	writer->stopping = true;
	pthread_cond_broadcast(&writer->changed);
	pthread_mutex_unlock(&writer->queue);
	pthread_join(writer->thread, NULL);
	pthread_mutex_destroy(&writer->naming);
	pthread_mutex_destroy(&writer->queue);
	pthread_cond_destroy(&writer->changed);
	free(writer);
}

static int job_new(const struct writer *writer, const struct snapshot_input *input,
		   struct job **ret)
{
	struct job *job CLEANUP(job) = calloc(1, sizeof(*job));
	int err;

	if (!job)
		return -ENOMEM;
	err = heap_copy(input->heap, &job->heap);
	if (err)
		return err;
	memcpy(job->losses, input->losses, sizeof(job->losses));
	job->processes = calloc(input->process_count + 1, sizeof(*job->processes));
	if (!job->processes)
		return -ENOMEM;
	memcpy(job->processes, input->processes, input->process_count * sizeof(*job->processes));
	snprintf(job->scope, sizeof(job->scope), "%s", input->scope);
	snprintf(job->reason, sizeof(job->reason), "%s", input->reason);
	job->input = *input;
	job->input.heap = job->heap;
	job->input.images = writer->context.images;
	job->input.symbolizer = writer->context.symbolizer;
	job->input.processes = job->processes;
	job->input.losses = job->losses;
	job->input.sample_bytes = writer->context.sample_bytes;
	job->input.scope = job->scope;
	job->input.reason = job->reason;
	*ret = take_ptr(job);
	return 0;
}

bool writer_is_full(struct writer *writer)
{
	bool full;

	pthread_mutex_lock(&writer->queue);
	full = writer->waiting >= MAX_WAITING;
	pthread_mutex_unlock(&writer->queue);
	return full;
}

int writer_add(struct writer *writer, const struct snapshot_input *input)
{
	struct job *job;
	int err;

	/* Before the heap is copied; nobody else adds any. */
	pthread_mutex_lock(&writer->queue);
	while (writer->waiting >= MAX_WAITING)
		pthread_cond_wait(&writer->changed, &writer->queue);
	pthread_mutex_unlock(&writer->queue);
	err = job_new(writer, input, &job);
	if (err)
		return err;
	pthread_mutex_lock(&writer->queue);
	*writer->last = job;
	writer->last = &job->next;
	writer->waiting++;
	pthread_cond_broadcast(&writer->changed);
	pthread_mutex_unlock(&writer->queue);
	return 0;
}

void writer_refresh(struct writer *writer)
{
	/* A snapshot being named was refreshed just before. */
	if (pthread_mutex_trylock(&writer->naming))
		return;
	if (writer->context.pid)
		symbolizer_refresh(writer->context.symbolizer, writer->context.pid);
	pthread_mutex_unlock(&writer->naming);
}

bool writer_finish(struct writer *writer)
{
	bool shown = false, failed;
	struct timespec until;

	pthread_mutex_lock(&writer->queue);
	while (writer->waiting) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		if (pthread_cond_timedwait(&writer->changed, &writer->queue, &until) == ETIMEDOUT) {
			log_progress("Looking up names: %u snapshot%s to write", writer->waiting,
				     writer->waiting == 1 ? "" : "s");
			shown = true;
		}
	}
	failed = writer->failed;
	pthread_mutex_unlock(&writer->queue);
	if (shown)
		log_progress(NULL);
	return !failed;
}
