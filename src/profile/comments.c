/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/comments.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "profile/accounts.h"
#include "profile/coverage.h"

static void add_comment(struct profile *profile, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void add_comment(struct profile *profile, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	profile_add_comment(profile, text);
}

/* What allocators have sampled themselves, and what its sum is worth. */
static void describe_own_samples(struct profile *profile, const struct snapshot_input *input)
{
	const uint64_t *counts = input->estimates;

	if (counts[ESTIMATE_GEOMETRIC])
		add_comment(profile,
			    "sampling: by tcmalloc itself, by chance, one per %" PRIu64
			    " bytes on average: %" PRIu64 " samples; values are unbiased estimates",
			    input->sample_bytes, counts[ESTIMATE_GEOMETRIC]);
	if (counts[ESTIMATE_JEMALLOC])
		add_comment(profile,
			    "sampling: by jemalloc itself, by chance, one per %" PRIu64
			    " bytes on average: %" PRIu64 " samples; values are unbiased estimates",
			    input->sample_bytes, counts[ESTIMATE_JEMALLOC]);
	if (counts[ESTIMATE_SYSTEMATIC])
		add_comment(profile,
			    "sampling: by tcmalloc's countdown, one per 16 MB and thread: %" PRIu64
			    " samples, each of which stands for all bytes of its thread since the "
			    "last; the sum is exact but for 16 MB per thread; few samples say "
			    "little of sites and of objects, and a thread that allocates less has "
			    "none",
			    counts[ESTIMATE_SYSTEMATIC]);
	if (counts[ESTIMATE_TOLD])
		add_comment(profile,
			    "sampling: as the program tells (USDT probes otel_memory): %" PRIu64
			    " samples; values are its own weights",
			    counts[ESTIMATE_TOLD]);
	if (!counts[ESTIMATE_GEOMETRIC] && !counts[ESTIMATE_JEMALLOC] &&
	    !counts[ESTIMATE_SYSTEMATIC] && !counts[ESTIMATE_TOLD])
		add_comment(profile, "sampling: by the allocator itself, which has taken no "
				     "sample so far");
	add_comment(profile,
		    "not counted: what is allocated from allocators, and in programs, that "
		    "do not sample by themselves (--mode heap counts it)");
}

static void describe_sampled(struct profile *profile, const struct snapshot_input *input,
			     const struct coverage *coverage)
{
	describe_own_samples(profile, input);
	add_comment(profile,
		    "in use: not known, as frees of what the allocator samples cannot be seen; "
		    "alloc_space %.0f, standard error %.0f (%.2f %%)",
		    coverage->alloc_bytes, coverage->alloc_error,
		    coverage->alloc_bytes > 0 ? 100 * coverage->alloc_error / coverage->alloc_bytes
					      : 0);
}

static void describe_malloc(struct profile *profile, const struct snapshot_input *input,
			    const struct coverage *coverage)
{
	if (input->own_samples) {
		describe_own_samples(profile, input);
		add_comment(profile,
			    "in use: of what was sampled since the attach; inuse_space %.0f, "
			    "standard error %.0f (%.2f %%)",
			    coverage->inuse_bytes, coverage->inuse_error,
			    coverage->inuse_bytes > 0
				    ? 100 * coverage->inuse_error / coverage->inuse_bytes
				    : 0);
		return;
	}
	if (input->sample_bytes == 1)
		add_comment(profile, "sampling: none, every allocation is counted");
	else
		add_comment(profile,
			    "sampling: one sample per %" PRIu64
			    " bytes on average; values are unbiased estimates; inuse_space %.0f, "
			    "standard error %.0f (%.2f %%)",
			    input->sample_bytes, coverage->inuse_bytes, coverage->inuse_error,
			    coverage->inuse_bytes > 0
				    ? 100 * coverage->inuse_error / coverage->inuse_bytes
				    : 0);
}

static void describe_mapped(struct profile *profile, const struct snapshot_input *input,
			    const struct coverage *coverage)
{
	add_comment(profile,
		    "mappings: every anonymous mapping made since the attach, in address space; "
		    "what malloc takes from them is in both accounts, which are not to be added");
}

static void describe_growth(struct profile *profile, const struct snapshot_input *input,
			    const struct coverage *coverage)
{
	add_comment(profile, "growth: what the heap has grown by since the attach, all of it; "
			     "what was freed or unmapped since stays in");
}

static void describe_faults(struct profile *profile, const struct snapshot_input *input,
			    const struct coverage *coverage)
{
	if (input->sample_bytes == 1)
		add_comment(profile, "sampling: none, every page fault is counted");
	else
		add_comment(profile,
			    "sampling: one page fault per %" PRIu64
			    " bytes made resident on average; values are unbiased estimates; "
			    "fault_space %.0f, standard error %.0f (%.2f %%)",
			    input->sample_bytes, coverage->alloc_bytes, coverage->alloc_error,
			    coverage->alloc_bytes > 0
				    ? 100 * coverage->alloc_error / coverage->alloc_bytes
				    : 0);
	add_comment(profile, "faults: what page faults made resident since the attach; what was "
			     "given back since stays in; not what the kernel makes resident "
			     "without a fault (MAP_POPULATE, mlock, memory for direct I/O)");
}

/* How the numbers of a group came to be, and how good its stacks are. */
static void comment_group(struct profile *profile, const struct snapshot_input *input,
			  enum account_group_id id)
{
	static void (*const describe[GROUP_COUNT])(struct profile * profile,
						   const struct snapshot_input *input,
						   const struct coverage *coverage) = {
		[GROUP_MALLOC] = describe_malloc,   [GROUP_MAPPED] = describe_mapped,
		[GROUP_GROWTH] = describe_growth,   [GROUP_FAULTS] = describe_faults,
		[GROUP_SAMPLED] = describe_sampled,
	};
	const struct account_group *group = &account_groups[id];
	struct coverage coverage;
	char stacks[512];

	coverage_measure(input->heap, group->accounts, input->sample_bytes, &coverage);
	describe[id](profile, input, &coverage);
	coverage_describe(&coverage, group->stack_type, stacks, sizeof(stacks));
	add_comment(profile, "stacks: %s", stacks);
}

void snapshot_comment(struct profile *profile, const struct snapshot_input *input)
{
	static const char *const loss_names[] = {
#define X(id, name, text) name,
		LOSSES(X)
#undef X
	};
	static const char *const loss_texts[] = {
#define X(id, name, text) text,
		LOSSES(X)
#undef X
	};
	bool any = false;

	add_comment(profile, "heaptap " HEAPTAP_VERSION);
	add_comment(profile, "scope: %s", input->scope);
	add_comment(profile, "reason: %s", input->reason);
	for (size_t i = 0; i < input->runtime_count; i++)
		add_comment(profile, "runtime: %s", input->runtimes[i]);
	for (int id = 0; id < GROUP_COUNT; id++)
		if (account_groups[id].accounts & input->accounts)
			comment_group(profile, input, id);
	if (input->late_files)
		add_comment(
			profile,
			"late: %zu file%s with an allocator loaded while the program ran; what "
			"was allocated there before it was probed (%.0f ms at most) is not counted",
			input->late_files, input->late_files == 1 ? "" : "s", input->late_ns / 1e6);
	if (input->late_processes)
		add_comment(profile,
			    "late: %zu process%s that started in the scope; what %s allocated "
			    "before being probed (%.0f ms at most) is not counted; %zu ended "
			    "before, and nothing of %s is",
			    input->late_processes, input->late_processes == 1 ? "" : "es",
			    input->late_processes == 1 ? "it" : "they",
			    input->late_processes_ns / 1e6, input->late_ended,
			    input->late_ended == 1 ? "it" : "them");
	if (input->refused_processes)
		add_comment(profile,
			    "not probed: %zu process%s that started in the scope: no more can be "
			    "probed one by one, and nothing of %s is counted (--force probes all)",
			    input->refused_processes, input->refused_processes == 1 ? "" : "es",
			    input->refused_processes == 1 ? "it" : "them");
	for (int loss = 0; loss < LOSS_COUNT; loss++) {
		if (!input->losses[loss].count)
			continue;
		any = true;
		add_comment(profile, "loss: %s %llu (%llu bytes): %s", loss_names[loss],
			    input->losses[loss].count,
			    input->losses[loss].bytes >> WEIGHT_BYTES_SHIFT, loss_texts[loss]);
	}
	if (!any)
		add_comment(profile, "losses: none");
}
