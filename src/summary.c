/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "summary.h"

#include <inttypes.h>
#include <math.h>

#include "profile/accounts.h"
#include "profile/coverage.h"
#include "profile/snapshot.h"
#include "util/log.h"

static void report_group(const struct heap *heap, enum account_group_id id, uint64_t sample_bytes,
			 bool own_samples)
{
	const struct account_group *group = &account_groups[id];
	struct coverage coverage;
	char stacks[512];

	coverage_measure(heap, group->accounts, sample_bytes, &coverage);
	coverage_describe(&coverage, group->stack_type, stacks, sizeof(stacks));
	if (coverage.alloc_bytes > 0)
		log_info("Stacks: %s", stacks);
	if ((id != GROUP_MALLOC && id != GROUP_FAULTS && id != GROUP_SAMPLED) ||
	    (id != GROUP_SAMPLED && sample_bytes == 1))
		return;
	if (coverage.alloc_bytes <= 0 && own_samples)
		log_info("Sampling: the allocator has sampled nothing");
	else if (coverage.alloc_bytes <= 0)
		log_info("Sampling: no %s was sampled; with a smaller --sample-bytes more are",
			 id == GROUP_FAULTS ? "page fault" : "allocation");
	else if (id == GROUP_SAMPLED)
		log_info("Sampling: allocated %.1f MB, standard error %.1f MB; in use is not known",
			 ldexp(coverage.alloc_bytes, -20), ldexp(coverage.alloc_error, -20));
	else if (id == GROUP_FAULTS)
		log_info("Sampling: made resident %.1f MB, standard error %.1f MB",
			 ldexp(coverage.alloc_bytes, -20), ldexp(coverage.alloc_error, -20));
	else
		log_info("Sampling: in use %.1f MB, standard error %.1f MB",
			 ldexp(coverage.inuse_bytes, -20), ldexp(coverage.inuse_error, -20));
}

void summary_losses(const struct loss_counter losses[LOSS_COUNT], const struct heap *heap,
		    uint32_t accounts, uint64_t sample_bytes, bool own_samples)
{
	static const char *const names[] = {
#define X(id, name, text) name ": " text,
		LOSSES(X)
#undef X
	};

	for (int loss = 0; loss < LOSS_COUNT; loss++) {
		if (losses[loss].count)
			log_warning("%llu times (%llu bytes) %s", losses[loss].count,
				    losses[loss].bytes >> WEIGHT_BYTES_SHIFT, names[loss]);
	}
	for (int id = 0; id < GROUP_COUNT; id++)
		if (account_groups[id].accounts & accounts)
			report_group(heap, id, sample_bytes, own_samples);
}

void summary_symbols(struct symbolizer *symbolizer)
{
	struct symbolizer_stats stats;

	symbolizer_read_stats(symbolizer, &stats);
	log_verbose("Names: %zu of %zu frames, %zu with lines, in %" PRIu64
		    " ms; %zu files, %.1f MB of tables, %zu times dropped; separate debug "
		    "files: %zu used, %zu refused; %zu asked of servers in %zu ms%s; %zu malformed "
		    "lines about JIT code",
		    stats.named, stats.frames, stats.with_lines, stats.time_ns / 1000000,
		    stats.images, ldexp(stats.table_bytes, -20), stats.forgotten, stats.debug_files,
		    stats.debuginfo.refused, stats.debuginfo.downloads,
		    stats.debuginfo.download_ns / 1000000,
		    stats.debuginfo.servers_failed ? ", then given up" : "",
		    stats.malformed_jit_lines);
}

void summary_tables(struct tables *tables)
{
	struct tables_stats stats;

	tables_read_stats(tables, &stats);
	log_verbose("Unwind tables: %zu files, %zu rows, %zu malformed entries dropped, %zu files "
		    "without, %zu failed, built in %" PRIu64 " ms",
		    stats.images, stats.rows, stats.dropped_fdes, stats.rowless, stats.failed,
		    stats.build_ns / 1000000);
}

void summary_processes(const struct kernel *kernel)
{
	size_t children = kernel_child_count(kernel);
	struct call_counts calls;

	if (children)
		log_info("%zu %s not counted: --follow takes children along", children,
			 children == 1 ? "process that was started is"
				       : "processes that were started are");
	if (!kernel_read_calls(kernel, &calls))
		log_verbose("Allocations: %.0f in the scope, %.0f in other processes that use the "
			    "same files, at the price of a trap and an early exit",
			    ldexp(calls.inside, -WEIGHT_OBJECTS_SHIFT),
			    ldexp(calls.outside, -WEIGHT_OBJECTS_SHIFT));
}
