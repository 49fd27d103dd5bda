/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The order of things matters here. Every image is opened and searched before the first probe is
 * placed; frees are probed before allocations; counting starts when all probes are in place and
 * ends before the first is removed. So a counted block can only be freed in sight.
 */
#include "session_parts.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "allocators.h"
#include "arrivals.h"
#include "cgroup_names.h"
#include "kernel.h"
#include "mappings.h"
#include "processes.h"
#include "profile/snapshot.h"
#include "scope_links.h"
#include "sights.h"
#include "slowdown_watch.h"
#include "snapshots.h"
#include "summary.h"
#include "target.h"
#include "util/clock.h"
#include "util/limits.h"
#include "util/log.h"
#include "util/timer.h"
#include "writer.h"

static int add_site(void *arg, const struct site_key *key, const struct site_counters *counters)
{
	struct session *session = arg;

	return heap_add(session->heap, key, counters);
}

/* NULL where what is in use is known. */
static const struct reason_sum *describe_sum(const struct session *session,
					     const struct epoch_record *record,
					     struct reason_sum *ret)
{
	const struct session_options *options = session->options;

	ret->bytes = record->totals.alloc_bytes >> WEIGHT_BYTES_SHIFT;
	if (options->mappings == MAPPINGS_ONLY) {
		ret->bytes = mappings_bytes(session->mappings);
		ret->what = "mapped";
	} else if (options->record == MODE_FAULTS) {
		ret->what = "made resident";
	} else if (options->record == MODE_GROWTH) {
		ret->what = "grown";
	} else if (options->frees_unknown) {
		ret->what = "allocated";
	} else {
		return NULL;
	}
	return ret;
}

/* Those of the kernel side, and of the loader. */
static int read_losses(const struct session *session, struct loss_counter losses[LOSS_COUNT])
{
	int err = kernel_read_losses(session->kernel, losses);

	losses[LOSS_CGROUP_FULL].count = cgroup_names_left_out(target_cgroups(session->target));
	return err;
}

/* Has the heap as it is now, after the epoch of `record`, written to the next file. */
static int write_snapshot(struct session *session, const struct epoch_record *record)
{
	struct loss_counter losses[LOSS_COUNT] = {};
	struct snapshot_input input = {
		.heap = session->heap,
		.accounts = session_accounts(session->options),
		.losses = losses,
		.threads = kernel_threads(session->kernel),
		.scope = session->scope,
		.late_files = allocators_late(session->allocators).count,
		.late_ns = allocators_late(session->allocators).longest_ns,
		.late_processes = scope_links_late(session->links).count,
		.late_ended = scope_links_late(session->links).ended,
		.late_processes_ns = scope_links_late(session->links).longest_ns,
		.refused_processes = scope_links_late(session->links).refused,
		.symbol_prefix = session->options->symbol_prefix,
		.own_samples = session->options->record == MODE_SAMPLER,
		.runtimes = runtimes_describe(session->runtimes),
		.runtime_count =
			session_probes(session->options) ? runtimes_count(session->runtimes) : 0,
		.duration_ns = record->time_ns - session->start_ns,
	};
	struct reason_sum sum;
	char reason[128];
	int err;

	snapshots_reason(record, describe_sum(session, record, &sum),
			 (record->time_ns - session->last_dump_ns + 500000000) / 1000000000, reason,
			 sizeof(reason));
	input.reason = reason;
	kernel_read_estimates(session->kernel, input.estimates);
	input.only_left = record->reason == EPOCH_LEFT;
	input.processes = processes_list(session->processes, &input.process_count);
	input.time_ns = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - record->time_ns);
	session->last_dump_ns = record->time_ns;
	if (session->options->interval_s)
		timer_set(session->loop.interval_fd, session->options->interval_s,
			  session->options->interval_s);
	err = read_losses(session, losses);
	if (!err)
		err = writer_add(session->writer, &input);
	return err ? log_error(err, "cannot make the snapshot '%s'", reason) : 0;
}

/*
 * What processes had in use that have exited is not in use any more; a file of their own still
 * says what that was.
 */
static int settle_and_write(struct session *session, const struct epoch_record *record)
{
	bool split = session->options->split;
	int err = processes_settle(session->processes, session->heap, record->time_ns, split);

	if (err || record->reason == EPOCH_DRAIN)
		return err;
	/* While names are looked up the session goes on: signals do not wait for them. */
	if (epoch_is_triggered(record->reason) && writer_is_full(session->writer)) {
		kernel_note_merged(session->kernel);
		return 0;
	}
	err = write_snapshot(session, record);
	if (!err && split)
		err = processes_settle(session->processes, session->heap, record->time_ns, false);
	return err;
}

/* After processes were looked at: what those have done that are gone has been told. */
static int update_mappings(struct session *session)
{
	int err = session->mappings ? mappings_update(session->mappings) : 0;

	if (!err && session->mappings)
		mappings_forget_gone(session->mappings);
	return err;
}

/* Drains the oldest closed epoch, if there is one, and has its snapshot written. */
static int drain_epoch(struct session *session)
{
	struct epoch_record record;
	int err;

	if (session->done || !kernel_next_epoch(session->kernel, &record))
		return 0;
	err = sights_update(session->sights);
	if (!err)
		err = processes_purge(session->processes);
	if (!err)
		err = kernel_drain(session->kernel, record.epoch, add_site, session);
	if (!err)
		err = processes_inherit(session->processes, session->heap, &record);
	if (!err)
		err = update_mappings(session);
	if (err)
		return log_error(err, "cannot read the kernel's counters");
	err = settle_and_write(session, &record);
	if (!err && (record.reason == EPOCH_EXIT || record.reason == EPOCH_DETACH))
		session->done = true;
	return err;
}

/* Those that are closed now: a target may close more than that, and faster. */
static int drain_epochs(struct session *session)
{
	size_t count = kernel_closed_epochs(session->kernel);
	int err = 0;

	while (count-- && !err)
		err = drain_epoch(session);
	return err;
}

static int close_and_drain(struct session *session, enum epoch_reason reason)
{
	int err;

	/*
	 * Whatever is closed already comes first, which also makes room: only one that ends the
	 * session could take it.
	 */
	do {
		err = drain_epochs(session);
		if (err || session->done)
			return err;
		err = kernel_close_epoch(session->kernel, reason);
	} while (err == -EAGAIN);
	return drain_epochs(session);
}

static int end_session(struct session *session, enum epoch_reason reason)
{
	kernel_set_active(session->kernel, false);
	attach_free(take_ptr(session->attach));
	kernel_faults_close(take_ptr(session->faults));
	return close_and_drain(session, reason);
}

static int handle_signals(struct session *session)
{
	struct signalfd_siginfo info;
	int err = 0;

	while (!err && !session->done &&
	       read(session->loop.signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR2)
			err = close_and_drain(session, EPOCH_SIGNAL);
		else
			err = end_session(session, EPOCH_DETACH);
	}
	return err;
}

static int handle_slowdown(struct session *session)
{
	int too_slow = slowdown_watch_look(session->slowdown);
	int err = too_slow ? end_session(session, EPOCH_DETACH) : 0;

	return err ? err : too_slow;
}

static int handle(struct session *session, int fd)
{
	if (fd == session->loop.signal_fd)
		return handle_signals(session);
	if (fd == session->loop.interval_fd)
		return timer_expired(fd) ? close_and_drain(session, EPOCH_TIME_INTERVAL) : 0;
	if (fd == session->loop.duration_fd)
		return timer_expired(fd) ? end_session(session, EPOCH_DETACH) : 0;
	if (session->mappings && fd == kernel_mapping_fd(session->kernel)) {
		int err = mappings_update(session->mappings);

		return err ? log_error(err, "cannot read the changes of mappings") : 0;
	}
	if (session->slowdown && fd == slowdown_watch_fd(session->slowdown))
		return handle_slowdown(session);
	if (fd == target_fd(session->target))
		/* The kernel side closed its epoch when the target exited; this is the safety net.
		 */
		return end_session(session, EPOCH_EXIT);
	return 0;
}

/* Files that the target has mapped: before anything else, as it may allocate from them already. */
static int handle_arrivals(struct session *session, const struct epoll_event *events, int count)
{
	int found = 0;

	for (int i = 0; i < count; i++) {
		if (session->arrivals && events[i].data.fd == arrivals_fd(session->arrivals))
			found = arrivals_handle(session->arrivals);
	}
	if (found < 0)
		return log_error(found, "cannot look at the files that the target has mapped");
	if (found) {
		sights_note_change(session->sights);
		sights_tell_runtimes(session->sights);
	}
	return 0;
}

/* Whether nobody is left in the scope, and there was somebody: a cgroup may be empty at first. */
static bool all_have_left(const struct session *session)
{
	return !session->options->target.all && !kernel_process_count(session->kernel) &&
	       (target_count(session->target) ||
		processes_any_since(session->processes, session->start_ns));
}

/*
 * The kernel side closes the last epoch when the last process leaves, but for two cases: it did not
 * get the lock, or they were gone before anything was counted.
 */
static int end_if_all_have_left(struct session *session)
{
	return !session->done && all_have_left(session) ? close_and_drain(session, EPOCH_EXIT) : 0;
}

/*
 * Looks at what the kernel side has announced. Processes may come and go by the thousand: they are
 * looked at every so often.
 */
static int handle_events(struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), due;
	__u32 types = 0;
	int err = kernel_consume_events(session->kernel, &types);

	if (!err && types & 1u << EVENT_IMAGE_SEEN)
		err = sights_update(session->sights);
	/* Where links do not reach it by themselves, every millisecond counts. */
	due = scope_links_are_late(session->links) ? now
						   : now + processes_pause_ns(session->processes);
	if (types & 1u << EVENT_PROCESS &&
	    (!session->processes_due_ns || due < session->processes_due_ns))
		session->processes_due_ns = due;
	if (!err)
		err = scope_links_judge(session->links, now);
	if (!err && session->processes_due_ns && now >= session->processes_due_ns) {
		err = processes_update(session->processes);
		session->processes_due_ns = processes_purge_due_ns(session->processes);
		if (!err)
			err = scope_links_update(session->links);
		if (scope_links_are_behind(session->links))
			session->processes_due_ns = now;
		/* Their own last files. */
		if (!err && session->options->split && processes_any_left(session->processes))
			err = close_and_drain(session, EPOCH_LEFT);
	}
	/* Room in the kernel's table, and for those that come. */
	if (!err &&
	    (kernel_sites_are_many(session->kernel) || processes_are_many(session->processes)))
		err = close_and_drain(session, EPOCH_DRAIN);
	if (!err)
		err = end_if_all_have_left(session);
	return err ? log_error(err, "cannot read the kernel's events") : 0;
}

static int wait_ms(const struct session *session)
{
	uint64_t due = scope_links_due_ns(session->links);

	/* More are closed, or have become many, while some are drained. */
	if (kernel_closed_epochs(session->kernel) || kernel_sites_are_many(session->kernel))
		return 0;
	if (session->processes_due_ns && session->processes_due_ns < due)
		due = session->processes_due_ns;
	return loop_wait_ms(due);
}

static int run_loop(struct session *session)
{
	struct epoll_event events[8];
	int count, err = 0;

	while (!err && !session->done) {
		count = epoll_wait(session->loop.epoll_fd, events, ARRAY_SIZE(events),
				   wait_ms(session));
		/* A stop and SIGCONT; signals of ours have a descriptor. */
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return log_error(errno, "cannot wait for events");
		err = handle_arrivals(session, events, count);
		if (err)
			return err;
		/* Other processes map files all the time: nothing else is looked at for these. */
		if (count == 1 && session->arrivals &&
		    events[0].data.fd == arrivals_fd(session->arrivals) &&
		    !kernel_closed_epochs(session->kernel))
			continue;
		err = handle_events(session);
		/* One at a time: what else there is to handle does not wait for all. */
		if (!err)
			err = drain_epoch(session);
		for (int i = 0; i < count && !err && !session->done; i++)
			err = handle(session, events[i].data.fd);
	}
	return err;
}

static void report_end(struct session *session)
{
	struct loss_counter losses[LOSS_COUNT] = {};

	if (!read_losses(session, losses))
		summary_losses(losses, session->heap, session_accounts(session->options),
			       session->options->sample_bytes,
			       session->options->record == MODE_SAMPLER);
	summary_symbols(session->symbolizer);
	summary_processes(session->kernel);
	snapshots_report(session->snapshots);
	target_report_end(session->target);
}

static int open_slowdown(struct session *session)
{
	const struct slowdown_watch_context context = {
		.kernel = session->kernel,
		.processes = session->processes,
		.allocators = session->allocators,
		.target = session->target,
		.options = session->options,
		.mode = session->mode,
	};
	int err = slowdown_watch_new(&context, &session->slowdown);

	if (!err)
		err = loop_watch(&session->loop, slowdown_watch_fd(session->slowdown));
	return err ? log_error(err, "cannot watch the slowdown") : 0;
}

static int start_target(struct session *session)
{
	const struct session_options *options = session->options;
	int err;

	if (options->clean)
		snapshots_remove_old(session->snapshots);
	kernel_set_active(session->kernel, true);
	session->start_ns = session->last_dump_ns = clock_ns(CLOCK_MONOTONIC);
	err = target_start(session->target);
	if (!err)
		err = processes_update(session->processes);
	if (!err && session->mappings)
		err = mappings_begin(session->mappings);
	if (!err && session_traps_calls(options))
		err = open_slowdown(session);
	if (err)
		return err;
	/* Now that the program runs: it may be gone before the first event. */
	writer_refresh(session->writer);
	snprintf(session->scope, sizeof(session->scope), "%s%s",
		 target_is_single(session->target) ? "pid " : "", target_words(session->target));
	log_info("Attached to %s", target_words(session->target));
	log_info("Starting tracking the heap");
	sights_tell_runtimes(session->sights);
	if (options->interval_s)
		timer_set(session->loop.interval_fd, options->interval_s, options->interval_s);
	if (options->duration_s)
		timer_set(session->loop.duration_fd, options->duration_s, 0);
	return end_if_all_have_left(session);
}

int session_run(const struct session_options *options)
{
	struct session session = {
		.options = &session.chosen,
		.chosen = *options,
		.root_fd = -1,
		.loop = LOOP_CLOSED,
	};
	int err;

	limits_set();
	err = limits_check_files();
	if (err)
		return log_error(err, "cannot open the %d files that a session needs at least",
				 FILES_NEEDED);
	err = session_open(&session);
	/* Much of what probes were placed by is not needed any more. */
	malloc_trim(0);
	if (!err)
		err = start_target(&session);
	if (!err) {
		err = run_loop(&session);
		if (!writer_finish(session.writer) && !err)
			err = -EIO;
		report_end(&session);
	}
	session_close(&session);
	return err;
}
