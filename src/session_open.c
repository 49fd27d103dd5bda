/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "allocators.h"
#include "arrivals.h"
#include "kernel.h"
#include "mappings.h"
#include "preflight.h"
#include "proc/process.h"
#include "processes.h"
#include "profile/accounts.h"
#include "profile/snapshot.h"
#include "samplers.h"
#include "scope_links.h"
#include "session_parts.h"
#include "sights.h"
#include "slowdown_check.h"
#include "slowdown_watch.h"
#include "snapshots.h"
#include "summary.h"
#include "target.h"
#include "throws.h"
#include "util/log.h"
#include "writer.h"

static int read_chunk(void *arg, uint64_t id, struct stack_chunk *ret)
{
	struct session *session = arg;

	return kernel_read_chunk(session->kernel, id, ret);
}

static int identify_files(void *arg, const int *fds, size_t count, uint32_t *ids)
{
	struct session *session = arg;

	return kernel_identify(session->kernel, fds, count, ids);
}

uint32_t session_accounts(const struct session_options *options)
{
	uint32_t mapped = options->mappings ? ACCOUNT_BIT(ACCOUNT_MAPPED) : 0;

	switch (options->record) {
	case MODE_GROWTH:
		return ACCOUNT_BIT(ACCOUNT_GROWTH);
	case MODE_FAULTS:
		return ACCOUNTS_OF_FAULTS;
	case MODE_SAMPLER:
		return ACCOUNT_BIT(options->frees_unknown ? ACCOUNT_SAMPLED : ACCOUNT_MALLOC);
	default:
		return options->mappings == MAPPINGS_ONLY ? mapped
							  : ACCOUNT_BIT(ACCOUNT_MALLOC) | mapped;
	}
}

bool session_probes(const struct session_options *options)
{
	return session_accounts(options) &
	       (ACCOUNT_BIT(ACCOUNT_MALLOC) | ACCOUNT_BIT(ACCOUNT_SAMPLED));
}

bool session_traps_calls(const struct session_options *options)
{
	return session_probes(options) && options->record != MODE_SAMPLER;
}

static int open_kernel(struct session *session, enum attach_mode mode)
{
	const struct session_options *options = session->options;
	struct kernel_options kernel_options = {
		.sample_bytes = options->sample_bytes,
		.alloc_interval = options->alloc_interval,
		.free_interval = options->free_interval,
		.inuse_interval = options->inuse_interval,
		.max_live = options->max_live,
		.max_live_each = target_stays_one(session->target, options->follow)
					 ? 0
					 : options->max_live / 4 * 3 + 1,
		.max_stacks = options->max_stacks,
		.max_processes = options->max_processes,
		.fork_copy = options->fork_copy,
		.mode = mode,
		.record = options->record,
		.probes = session_probes(options),
		.frees_unknown = options->frees_unknown,
		.mappings = options->mappings,
		.label_threads = options->label_threads,
		.verbose = options->verbose,
	};
	int err;

	err = target_scope(session->target, options->follow, &kernel_options.scope);
	if (err)
		return err;
	return preflight_load(&kernel_options, &session->kernel);
}

static int open_links(struct session *session, enum attach_mode mode)
{
	/* Without probes there is nothing to limit to the scope. */
	enum scope_reach reach =
		session_probes(session->options)
			? target_reach(session->target, mode, session->options->follow,
				       session->options->reach_all)
			: REACH_ALL;
	struct scope_links_context context = {
		.kernel = session->kernel,
		.reach = reach,
		.max = scope_links_max(mode),
	};
	_cleanup_free_ pid_t *pids = target_pids(session->target, &context.pid_count);
	const pid_t all = 0;
	int err;

	if (!pids)
		return -ENOMEM;
	context.pids = pids;
	err = processes_new(session->kernel, target_cgroups(session->target),
			    target_container(session->target), &session->processes);
	if (!err && session->options->fork_copy)
		err = processes_copy_forks(session->processes, session->options->split);
	if (!err)
		err = attach_new(mode, kernel_programs(session->kernel),
				 reach == REACH_EACH ? pids : &all,
				 reach == REACH_EACH ? context.pid_count : 1, &session->attach);
	if (err)
		return err;
	if (!target_is_single(session->target))
		attach_expect_others(session->attach);
	context.attach = session->attach;
	context.processes = session->processes;
	return scope_links_new(&context, &session->links);
}

static int open_writer(struct session *session)
{
	const struct writer_context context = {
		.images = session->images,
		.symbolizer = session->symbolizer,
		.snapshots = session->snapshots,
		.sample_bytes = session->options->sample_bytes,
		.pid = target_pid(session->target),
		.split = session->options->split,
	};
	int err = writer_new(&context, &session->writer);

	return err ? log_error(err, "cannot start the session") : 0;
}

static void open_arrivals(struct session *session)
{
	struct arrivals *arrivals CLEANUP(arrivals) = NULL;
	int err;

	err = arrivals_new(session->allocators, session->kernel, session->options->target.all,
			   &arrivals);
	if (!err)
		err = loop_watch(&session->loop, arrivals_fd(arrivals));
	if (!err)
		session->arrivals = take_ptr(arrivals);
	else
		log_warning("the kernel does not tell which files are mapped (%s): an allocator "
			    "that is loaded later is not seen",
			    strerror(-err));
}

static int open_mappings(struct session *session)
{
	int err = kernel_attach_mappings(session->kernel);

	if (err)
		return log_error(err, "cannot watch the syscalls that change mappings (is tracefs "
				      "mounted at /sys/kernel/tracing?)");
	if (!session->options->mappings)
		return 0;
	err = mappings_new(session->kernel, session->processes, session->heap, &session->mappings);
	if (!err)
		err = loop_watch(&session->loop, kernel_mapping_fd(session->kernel));
	return err ? log_error(err, "cannot start the session") : 0;
}

int session_open(struct session *session)
{
	struct session_options *options = session->options;
	const struct symbolizer_options symbolizer_options = {
		.debug_dirs = options->debug_dirs,
		.debug_dir_count = options->debug_dir_count,
		.lines = !options->no_lines,
	};
	struct allocators_context allocators;
	struct sights_context sights;
	struct upload_maps maps;
	enum attach_mode mode = ATTACH_AUTO;
	int err;

	err = preflight_check(options->mode, &mode);
	if (!err)
		err = snapshots_open(options->prefix, &session->snapshots);
	if (!err)
		err = loop_open(&session->loop);
	if (!err)
		err = target_open(&options->target, &session->target);
	if (!err)
		err = samplers_choose(options, session->target);
	if (!err && session_traps_calls(options))
		err = slowdown_check(options, mode, session->target);
	if (err)
		return err;
	session->mode = mode;
	if (target_fd(session->target) >= 0 && !options->follow &&
	    loop_watch(&session->loop, target_fd(session->target)))
		return log_error(errno, "cannot watch the target");
	err = images_new(identify_files, session, &session->images);
	if (!err)
		err = symbolizer_new(&symbolizer_options, &session->symbolizer);
	if (!err)
		err = heap_new(read_chunk, session, &session->heap);
	if (!err)
		err = runtimes_new(target_variable, session->target, &session->runtimes);
	if (err)
		return log_error(err, "cannot start the session");
	err = open_kernel(session, mode);
	if (err)
		return err;
	/* Before any probe is placed: that takes some time, in which others may come. */
	err = target_enter(session->target, session->kernel, options->follow);
	if (err)
		return err;
	session->root_fd = target_open_root(session->target);
	maps = kernel_upload_maps(session->kernel);
	err = throws_new(session->kernel, &session->throws);
	if (!err)
		err = tables_new(&maps, &session->tables);
	if (!err)
		err = loop_watch(&session->loop, kernel_event_fd(session->kernel));
	if (!err)
		err = open_links(session, mode);
	if (err)
		return log_error(err, "cannot start the session");
	sights = (struct sights_context){
		.kernel = session->kernel,
		.images = session->images,
		.tables = session->tables,
		.runtimes = session->runtimes,
		.processes = session->processes,
		.lazy_tables = options->target.all,
		.all_rows = options->record == MODE_FAULTS,
		.tell_runtimes = session_probes(options),
	};
	allocators = (struct allocators_context){
		.kernel = session->kernel,
		.attach = session->attach,
		.tables = session->tables,
		.images = session->images,
		.runtimes = session->runtimes,
		.locate =
			{
				.signature_files = options->signature_files,
				.signature_file_count = options->signature_file_count,
				.debug_dirs = options->debug_dirs,
				.debug_dir_count = options->debug_dir_count,
				.root_fd = session->root_fd,
				.download = true,
			},
		.symbol_prefix = options->symbol_prefix,
		.plain_entries = options->plain_entries,
		.lazy_tables = options->target.all,
		.all_rows = options->record == MODE_FAULTS,
		.no_probes = !session_probes(options),
		.samplers = options->record == MODE_SAMPLER,
		.mode = mode,
	};
	err = allocators_new(&allocators, &session->allocators);
	if (err)
		return err;
	err = sights_new(&sights, &session->sights);
	if (err)
		return log_error(err, "cannot start the session");
	open_arrivals(session);
	err = target_attach(session->target, session->kernel, session->allocators,
			    session->arrivals != NULL);
	if (err)
		return err;
	/* A single one may have children by the time that it is gone. */
	attach_expect_others(session->attach);
	summary_tables(session->tables);
	err = open_mappings(session);
	if (err)
		return err;
	if (options->record == MODE_FAULTS) {
		err = preflight_faults(session->kernel, &session->faults);
		if (err)
			return err;
	}
	return open_writer(session);
}

void session_close(struct session *session)
{
	slowdown_watch_free(session->slowdown);
	attach_free(session->attach);
	kernel_faults_close(session->faults);
	arrivals_free(session->arrivals);
	allocators_free(session->allocators);
	writer_free(session->writer);
	tables_free(session->tables);
	throws_free(session->throws);
	runtimes_free(session->runtimes);
	sights_free(session->sights);
	scope_links_free(session->links);
	mappings_free(session->mappings);
	processes_free(session->processes);
	kernel_close(session->kernel);
	target_free(session->target);
	snapshots_close(session->snapshots);
	heap_free(session->heap);
	symbolizer_free(session->symbolizer);
	images_free(session->images);
	loop_close(&session->loop);
	if (session->root_fd >= 0)
		close(session->root_fd);
}
