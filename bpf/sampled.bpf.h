/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What allocators sample by themselves: heaptap only takes note of it, and nothing traps that is no
 * sample. Included by heaptap.bpf.c alone, whose functions it uses.
 */
#ifndef HEAPTAP_SAMPLED_BPF_H
#define HEAPTAP_SAMPLED_BPF_H

#include "maps.bpf.h"
#include "pending.bpf.h"
#include "registers.bpf.h"
#include "sampler.bpf.h"
#include "sites.bpf.h"
#include "stack.bpf.h"

/* struct tcmalloc::Sampler of gperftools: what is left of the distance; 16: whether one was drawn.
 */
#define COUNTDOWN_IS_DRAWN 16

/* gperftools can be built for pages of 4 to 256 KiB; a span's number is its address in pages. */
#define PAGE_SHIFT_MIN 12
#define PAGE_SHIFT_MAX 18

static __always_inline __u64 sampled_register(const struct pt_regs *ctx, __u32 number)
{
	__u64 sp = ctx->sp;

	barrier_var(sp);
	if (number == SAMPLER_NO_REGISTER)
		return 0;
	return number == 4 ? sp : register_read(ctx, number);
}

/* The value of a USDT probe's argument. Returns 0, or nonzero if it cannot be read. */
static __noinline long sampled_argument(struct pt_regs *ctx, const struct sampler_arg *arg,
					__u64 *ret)
{
	__u64 value = 0, address;
	__u32 unused, size;

	if (!arg || !ret)
		return -22; /* EINVAL */
	/* 1 to 8, as the loader has seen to; the verifier has not. */
	size = ((arg->size - 1u) & 7) + 1;
	unused = 64 - 8 * size;
	switch (arg->kind) {
	case SAMPLER_ARG_CONSTANT:
		*ret = arg->value;
		return 0;
	case SAMPLER_ARG_REGISTER:
		value = sampled_register(ctx, arg->base);
		break;
	case SAMPLER_ARG_MEMORY:
		address = arg->value + sampled_register(ctx, arg->base) +
			  (sampled_register(ctx, arg->index) << (arg->shift & 3));
		if (bpf_probe_read_user(&value, size, (void *)address))
			return -14; /* EFAULT */
		break;
	default:
		return -22;
	}
	value <<= unused & 63;
	*ret = arg->is_signed ? (__u64)((__s64)value >> (unused & 63)) : value >> (unused & 63);
	return 0;
}

/*
 * A sample was taken. pc, sp and bp as stack_capture() wants them, serial_flags, too; address: of
 * the block, or 0 if its free will not be seen.
 */
static __always_inline void sampled_add(__u64 pc, __u64 sp, __u64 bp, __u32 serial_flags,
					__u64 address, const struct weight *weight)
{
	__u32 serial = serial_flags & ~(STACK_INTERRUPTED | STACK_OWN_IMAGE);
	struct live_record record;

	record_make(&record, pc, sp, bp, serial_flags, weight);
	if (settings.frees_unknown) {
		site_add(ACCOUNT_SAMPLED, serial, &record);
	} else if (address) {
		record_add(serial, address, &record);
	} else {
		site_alloc(serial, &record);
		loss_add(LOSS_SAMPLER_FREE_UNKNOWN, weight->bytes);
		site_freed(serial, &record);
	}
}

static __always_inline void estimate_note(enum sampler_estimate estimate)
{
	__sync_fetch_and_add(&estimate_counts[estimate], 1);
}

/* The mean distance that the allocator draws with, or 0 if that is not known. */
static __always_inline __u64 sampled_mean(__u64 interval_at)
{
	__s64 mean = 0;

	if (!interval_at || bpf_probe_read_user(&mean, sizeof(mean), (void *)interval_at) ||
	    mean <= 0)
		return 0;
	return mean < (__s64)SAMPLE_BYTES_MAX ? mean : SAMPLE_BYTES_MAX;
}

/* Beside the index in an argument: a function has five at most. */
#define COUNTDOWN_DRAWN (1u << 31)

/*
 * What a call leaves: `out` is what was left of the distance, `in_place` whether one was drawn. A
 * global function, as its stack is not there any more when the walk at the return needs it.
 */
__noinline int sampled_wanted(__u32 point_flags, __u64 size, __u64 left, __u64 sp,
			      __u64 interval_at)
{
	__u32 serial = process_serial();
	struct pending *call = serial ? pending_push(serial, sp, 0) : NULL;

	if (!call)
		return NO_RETURN;
	call->size = size;
	call->out = left;
	call->in_place = !!(point_flags & COUNTDOWN_DRAWN);
	call->old_address = interval_at;
	call->point = point_flags & ~COUNTDOWN_DRAWN;
	return RUN_AT_RETURN;
}

/* What tcmalloc takes from its countdown for the block that it is about to sample. */
__noinline int countdown_ended(__u64 allocated)
{
	struct pending_calls *calls =
		process_serial() ? pending_get(BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;

	if (calls)
		calls->allocated = allocated;
	return NO_RETURN;
}

static __always_inline int sampled_entered(struct pt_regs *ctx)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	__u32 key = spec.offset;
	struct sampler_point *point = bpf_map_lookup_elem(&sampler_points, &key);
	__u64 left = 0, size = ctx->di, second = ctx->si;
	__u8 drawn = 0;

	/* Not one load at an offset that depends: the verifier refuses it for a context. */
	barrier_var(size);
	barrier_var(second);
	if (!point || spec.generation != generation)
		return NO_RETURN;
	if (point->kind == PROBE_COUNTDOWN) {
		if (bpf_probe_read_user(&left, sizeof(left), (void *)size) ||
		    bpf_probe_read_user(&drawn, sizeof(drawn), (void *)size + COUNTDOWN_IS_DRAWN)) {
			loss_add(LOSS_SAMPLER_UNREADABLE, 0);
			return NO_RETURN;
		}
		size = second;
		/* By the parameter, and not for the first time: the result is known. */
		if (settings.session && drawn && point->flags & SAMPLER_BLOCK_PROBED &&
		    point->interval_at && sampled_mean(ctx->ip + point->interval_at))
			return countdown_ended(size);
	}
	return sampled_wanted(key | (drawn ? COUNTDOWN_DRAWN : 0), size, left, ctx->sp,
			      point->interval_at ? ctx->ip + point->interval_at : 0)
		       ? NO_RETURN
		       : RUN_AT_RETURN;
}

/* The bytes that a countdown of the fixed distance has passed. */
static __always_inline __u64 countdown_passed(const struct pending *call)
{
	return call->out < SAMPLER_COUNTDOWN_BYTES ? SAMPLER_COUNTDOWN_BYTES - call->out : 0;
}

/*
 * What the end of a countdown stands for, where it is no sample to tcmalloc: the bytes since the
 * last one, of this thread. Returns whether it is one.
 */
static __always_inline bool countdown_weigh(const struct pending *call, struct weight *weight)
{
	__u64 passed = countdown_passed(call), bytes = call->size ? call->size : 1, all;

	sampler_weight_of(&sampling, SAMPLER_COUNTDOWN_BYTES, bytes, weight);
	weight->variance = sampler_variance(&sampling, SAMPLER_COUNTDOWN_BYTES, weight->variance);
	if (bytes > SAMPLER_COUNTDOWN_BYTES) {
		/* It would have been hit in any case, and stands for itself. */
		weight->bytes = bytes << WEIGHT_BYTES_SHIFT;
		weight->objects = 1ull << WEIGHT_OBJECTS_SHIFT;
		weight->variance = 0;
		if (passed)
			loss_add(LOSS_SAMPLER_SKIPPED, passed << WEIGHT_BYTES_SHIFT);
		return true;
	}
	/* A thread's first end takes the block off the next distance once more. */
	all = call->in_place ? passed + bytes : passed;
	weight->bytes = all << WEIGHT_BYTES_SHIFT;
	weight->objects = (all << WEIGHT_OBJECTS_SHIFT) / bytes;
	return all;
}

/*
 * What a block stands for that tcmalloc has sampled. Its chance is that of the size that the block
 * has, which tcmalloc rounds up; what was asked for is what it counts with.
 */
static __always_inline void sampled_weigh(__u64 mean, __u64 size, __u64 allocated,
					  struct weight *weight)
{
	if (allocated < size)
		allocated = size;
	sampler_weight_of(&sampling, mean, allocated, weight);
	weight->variance = sampler_variance(&sampling, mean, weight->variance);
	if (allocated != size)
		weight->bytes =
			size * weight->objects >> (WEIGHT_OBJECTS_SHIFT - WEIGHT_BYTES_SHIFT);
}

static __always_inline bool is_first_thread(void)
{
	__u64 id = bpf_get_current_pid_tgid();

	return (__u32)id == id >> 32;
}

/*
 * A countdown has ended in a call that has returned, with a parameter if mean is not 0. Returns
 * whether that is a sample, whose block is not DoSampledAllocation()'s.
 *
 * tcmalloc lets the first end in each thread pass: it draws anew. Where that distance was drawn by
 * the parameter it is a sample all the same. Not so in the first thread, which drew it before
 * tcmalloc had read the parameter.
 */
static __always_inline bool countdown_judge(struct pending_calls *calls, struct pending *call,
					    const struct sampler_point *point, __u64 mean,
					    bool declined)
{
	bool unarmed = mean && !call->in_place && is_first_thread();

	if (declined && !mean) {
		if (!countdown_weigh(call, &call->weight))
			return false;
		estimate_note(ESTIMATE_SYSTEMATIC);
		return true;
	}
	if (unarmed)
		loss_add(LOSS_SAMPLER_UNARMED, countdown_passed(call) << WEIGHT_BYTES_SHIFT);
	calls->allocated = declined ? 0 : call->size;
	if (declined ? unarmed || call->in_place : point->flags & SAMPLER_BLOCK_PROBED)
		return false;
	if (!mean) {
		loss_add(LOSS_SAMPLER_UNREADABLE, 0);
		return false;
	}
	sampled_weigh(mean, call->size, call->size, &call->weight);
	estimate_note(ESTIMATE_GEOMETRIC);
	return true;
}

/*
 * Whether a call that has returned was a sample. Leaves its weight in the call, and in old_address
 * the block's address if its free will be seen, else 0. Not on the stack, which the walk needs, and
 * so no part of its caller.
 */
static __noinline bool sampled_judge(struct pending *call, const struct sampler_point *point,
				     __u64 result)
{
	struct pending_calls *calls = pending_get(0);
	__u64 mean;

	if (!calls || !call || !point)
		return false;
	mean = sampled_mean(call->old_address);
	call->old_address = 0;
	/* No address space has so much. */
	if (call->size >> ADDRESS_BITS)
		return false;
	/* A bool: the rest of the register may be anything. */
	if (point->kind == PROBE_COUNTDOWN)
		return countdown_judge(calls, call, point, mean, result & 0xff);
	/* There was no memory. */
	if (!result)
		return false;
	if (!mean) {
		loss_add(LOSS_SAMPLER_UNREADABLE, 0);
		return false;
	}
	sampled_weigh(mean, call->size, calls->allocated, &call->weight);
	calls->allocated = 0;
	if (!(point->flags & SAMPLER_FREES_UNKNOWN))
		call->old_address = result;
	estimate_note(ESTIMATE_GEOMETRIC);
	return true;
}

__noinline int sampled_returned(__u64 result, __u64 pc, __u64 sp, __u64 bp)
{
	__u32 serial = 0, key;
	struct pending *call = call_returned(sp, &serial);
	struct sampler_point *point;

	if (!call)
		return 0;
	key = call->point;
	point = bpf_map_lookup_elem(&sampler_points, &key);
	if (!point || !sampled_judge(call, point, result))
		return 0;
	if (point->flags & SAMPLER_OWN_IMAGE)
		serial |= STACK_OWN_IMAGE;
	sampled_add(pc, sp, bp, serial, call->old_address, &call->weight);
	return 0;
}

/*
 * otel_memory:alloc(block, size, bytes it stands for). Returns the block, and what it stands for in
 * the thread's storage; 0 if there is nothing to count.
 */
static __noinline __u64 told_read(struct pt_regs *ctx, struct sampler_point *point,
				  struct weight *weight)
{
	__u64 address, size, told;

	if (!point || !weight || sampled_argument(ctx, &point->args[0], &address) ||
	    sampled_argument(ctx, &point->args[1], &size) ||
	    sampled_argument(ctx, &point->args[2], &told) || size >> ADDRESS_BITS ||
	    told >> ADDRESS_BITS) {
		loss_add(LOSS_SAMPLER_UNREADABLE, 0);
		return 0;
	}
	if (!address)
		return 0;
	sampler_weight_told(&sampling, size, told, weight);
	estimate_note(ESTIMATE_TOLD);
	return address;
}

/*
 * jemalloc has sampled a block. What it stands for waits in the thread's storage for the extent,
 * by which it is known when it is freed. Its chance is that of the size that the block has.
 */
static __noinline int object_sampled(__u64 size, __u64 usable, __u64 log2_at)
{
	struct pending_calls *calls = pending_get(BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 log2 = 0;

	if (!calls) {
		loss_add(LOSS_PENDING_FULL, 0);
		return 0;
	}
	calls->has_told = 0;
	if (bpf_probe_read_user(&log2, sizeof(log2), (void *)log2_at) || size >> ADDRESS_BITS ||
	    usable >> ADDRESS_BITS) {
		loss_add(LOSS_SAMPLER_UNREADABLE, 0);
		return 0;
	}
	sampled_weigh(log2 < 31 ? 1ull << log2 : SAMPLE_BYTES_MAX, size, usable, &calls->told);
	calls->has_told = 1;
	estimate_note(ESTIMATE_JEMALLOC);
	return 0;
}

/* The extent's block is about to be freed or reallocated: its record waits for the outcome. */
static __noinline int extent_leaves(__u32 serial, __u64 address)
{
	struct pending_calls *calls = pending_get(BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct pending *call;

	if (!calls) {
		loss_add(LOSS_PENDING_FULL, 0);
		return 0;
	}
	call = &calls->extent;
	/* Of a realloc that has failed. */
	pending_restore(serial, call);
	call->old_address = address;
	/* Out of the table now: once it is free, another thread may get the extent. */
	call->has_old = live_possible(address) && live_take(serial, address, &call->old);
	return 0;
}

/* What has left its extent is freed. */
static __noinline int object_freed(__u32 serial)
{
	struct pending_calls *calls = pending_get(0);
	struct pending *call;
	__u64 address;

	if (!calls)
		return 0;
	call = &calls->extent;
	address = call->old_address;
	if (call->has_old) {
		live_forget(address);
		site_freed(serial, &call->old);
	} else if (settings.fork_copy && address) {
		fork_freed_by_realloc(serial, address);
	}
	call->has_old = 0;
	call->old_address = 0;
	return 0;
}

/* A sample whose weight is, or will be, in the thread's storage, and which is known by an address.
 */
static __always_inline void marked_alloc(struct pt_regs *ctx, struct sampler_point *point,
					 __u32 serial)
{
	struct pending_calls *calls = pending_get(BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 pc = ctx->ip, sp = ctx->sp, address = ctx->di;

	barrier_var(pc);
	barrier_var(sp);
	barrier_var(address);
	if (!calls) {
		loss_add(LOSS_PENDING_FULL, 0);
		return;
	}
	if (point->kind == PROBE_TOLD_ALLOC) {
		serial |= STACK_INTERRUPTED;
		address = told_read(ctx, point, &calls->told);
		if (!address)
			return;
	} else {
		/* Attached between the two calls. */
		if (!calls->has_told)
			return;
		calls->has_told = 0;
		if (bpf_probe_read_user(&pc, sizeof(pc), (void *)sp)) {
			loss_add(LOSS_SAMPLER_UNREADABLE, calls->told.bytes);
			return;
		}
		sp += 8;
	}
	if (point->flags & SAMPLER_FREES_UNKNOWN)
		address = 0;
	if (point->flags & SAMPLER_OWN_IMAGE)
		serial |= STACK_OWN_IMAGE;
	sampled_add(pc, sp, ctx->bp, serial, address, &calls->told);
}

/* What is freed could not be read; the process may not be in the scope. */
static __always_inline int free_unreadable(void)
{
	if (process_serial())
		loss_add(LOSS_SAMPLER_UNREADABLE, 0);
	return 0;
}

static __noinline int told_free(struct pt_regs *ctx, struct sampler_point *point)
{
	__u64 address = 0;

	if (!point || sampled_argument(ctx, &point->args[0], &address))
		free_unreadable();
	else if (address && live_possible(address))
		free_wanted(address);
	return 0;
}

/* A span is given back: it was a sample's, if one lies at its address. */
static __noinline int span_free(__u64 span)
{
	__u64 page;
	__u32 shift;

	if (bpf_probe_read_user(&page, sizeof(page), (void *)span))
		return free_unreadable();
	for (shift = PAGE_SHIFT_MIN; shift <= PAGE_SHIFT_MAX; shift++) {
		if (page && !(page >> (ADDRESS_BITS - shift)) && live_possible(page << shift))
			free_wanted(page << shift);
	}
	return 0;
}

SEC("uprobe")
int sampled_session(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_sessions);
	if (!is_return(ctx))
		return sampled_entered(ctx);
	sampled_returned(ctx->ax, ctx->ip, ctx->sp, ctx->bp);
	return 0;
}

SEC("uprobe")
int sampled_enter(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	sampled_entered(ctx);
	return 0;
}

SEC("uretprobe")
int sampled_return(struct pt_regs *ctx)
{
	NO_PRIVATE_STACK(ctx, no_programs);
	sampled_returned(ctx->ax, ctx->ip, ctx->sp, ctx->bp);
	return 0;
}

/* Where allocators tell of samples and of their frees, with nothing to be learnt at the return. */
SEC("uprobe")
int sampled_mark(struct pt_regs *ctx)
{
	struct probe_spec spec = probe_spec_of(bpf_get_attach_cookie(ctx));
	__u32 key = spec.offset, serial;
	struct sampler_point *point = bpf_map_lookup_elem(&sampler_points, &key);

	NO_PRIVATE_STACK(ctx, no_programs);
	if (!point || spec.generation != generation)
		return 0;
	/* Most spans are no sample's: the process is looked at for one that is, in free_wanted().
	 */
	switch (point->kind) {
	case PROBE_TOLD_FREE:
		return told_free(ctx, point);
	case PROBE_SPAN_FREE:
		return span_free(ctx->si);
	}
	serial = process_serial();
	if (!serial)
		return 0;
	switch (point->kind) {
	case PROBE_TOLD_ALLOC:
	case PROBE_EXTENT_SAMPLED:
		marked_alloc(ctx, point, serial);
		return 0;
	case PROBE_OBJECT_SAMPLED:
		return object_sampled(ctx->dx, ctx->cx, ctx->ip + point->interval_at);
	case PROBE_EXTENT_LEAVES:
		return extent_leaves(serial, ctx->si);
	case PROBE_OBJECT_FREED:
		return object_freed(serial);
	}
	return 0;
}

#endif
