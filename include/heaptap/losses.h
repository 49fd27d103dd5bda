/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Losses: everything heaptap knows it did not count. Each has a name, a counter per CPU and, where
 * it is known, the weight in bytes of what was lost. They stand in every snapshot's comments and
 * in the report at the end.
 */
#ifndef HEAPTAP_LOSSES_H
#define HEAPTAP_LOSSES_H

#include "heaptap/types.h"

#define LOSSES(X)                                                                                  \
	X(PENDING_FULL, "pending_full",                                                            \
	  "allocations not counted: no memory for the state between call and return")              \
	X(RETURN_UNMATCHED, "return_unmatched",                                                    \
	  "allocations not counted: the call's state was gone at its return")                      \
	X(RETURN_MISSED, "return_missed",                                                          \
	  "calls whose return was not seen: they jumped out, or the kernel placed no return "      \
	  "probe "                                                                                 \
	  "(64 may wait per thread)")                                                              \
	X(OUT_FAULT, "out_fault",                                                                  \
	  "allocations not counted: posix_memalign's result was unreadable")                       \
	X(NESTED_UNKNOWN, "nested_unknown",                                                        \
	  "calls that may have counted twice: it could not be seen whether an allocation "         \
	  "function made them")                                                                    \
	X(SCRATCH_BUSY, "scratch_busy",                                                            \
	  "allocations counted without a stack: all scratch slots of the CPU were in use")         \
	X(STACK_FULL, "stack_full",                                                                \
	  "allocations counted without a stack: the stack table was full (--max-stacks)")          \
	X(IMAGE_FULL, "image_full", "frames left as raw addresses: the image table was full")      \
	X(PROCESS_FULL, "process_full",                                                            \
	  "processes not counted: the process table was full (--max-processes)")                   \
	X(ALLOCATOR_MISSED, "allocator_missed",                                                    \
	  "files whose allocations are not counted, or not all, if they have an allocator: they "  \
	  "could not be opened, told from others or probed")                                       \
	X(SITE_FULL, "site_full", "changes not counted: the site table was full")                  \
	X(THREAD_FULL, "thread_full",                                                              \
	  "allocations labelled with the thread \"(other)\": there are more than 4096 names of "   \
	  "threads")                                                                               \
	X(CGROUP_FULL, "cgroup_full",                                                              \
	  "processes labelled with the cgroup and the container \"(other)\": there are more than " \
	  "16384 cgroups")                                                                         \
	X(MAPPING_FULL, "mapping_full",                                                            \
	  "changes of mappings not told: the ring was full; the account was put right from "       \
	  "/proc/PID/maps, and what was mapped meanwhile has no stack")                            \
	X(MAPPING_MISSED, "mapping_missed",                                                        \
	  "changes of mappings not seen: the kernel did not run the program that counts them; "    \
	  "what is mapped was put right likewise, and --mode growth lacks what they added")        \
	X(MAPPING_UNKNOWN, "mapping_unknown",                                                      \
	  "changes of mappings not counted as what they are: what was there before was not "       \
	  "found; what is mapped was put right likewise, and --mode growth lacks what they "       \
	  "added")                                                                                 \
	X(LIVE_FULL, "live_full",                                                                  \
	  "allocations counted in alloc_* but not in inuse_*: the live table, or the share of it " \
	  "that one process may take, was full (--max-live)")                                      \
	X(COPY_MISSED, "copy_missed",                                                              \
	  "blocks that a forked child does not have in inuse_*: its parent freed them before "     \
	  "they were copied, and no room was left to keep them (--fork-copy)")                     \
	X(COPY_FREE_MISSED, "copy_free_missed",                                                    \
	  "frees of inherited blocks not counted: a forked child made them before the blocks "     \
	  "were copied, and no room was left to note them (--fork-copy)")                          \
	X(THROW_LATE, "throw_late",                                                                \
	  "exceptions that met a return probe before heaptap had taken it away: they end the "     \
	  "program")                                                                               \
	X(LIVE_UNKNOWN, "live_unknown",                                                            \
	  "allocations counted in alloc_* but not in inuse_*: operator new may throw, and the "    \
	  "process has no known place where exceptions begin")                                     \
	X(SAMPLER_FREE_UNKNOWN, "sampler_free_unknown",                                            \
	  "samples of an allocator counted in alloc_* but not in inuse_*: their frees cannot be "  \
	  "seen")                                                                                  \
	X(SAMPLER_UNREADABLE, "sampler_unreadable",                                                \
	  "samples of an allocator not counted: what it says of them could not be read, or "       \
	  "cannot be")                                                                             \
	X(SAMPLER_UNARMED, "sampler_unarmed",                                                      \
	  "threads whose first 16 MiB no sample stands for: tcmalloc had not read its parameter "  \
	  "yet")                                                                                   \
	X(SAMPLER_SKIPPED, "sampler_skipped",                                                      \
	  "times that an allocation larger than tcmalloc's distance between samples came before "  \
	  "the next one: no sample stands for the bytes between")                                  \
	X(FREE_MISSED, "free_missed",                                                              \
	  "frees not seen: their address was allocated again (counted as freed then)")             \
	X(FAULT_MISSED, "fault_missed",                                                            \
	  "page faults, of any process, that the kernel counted and did not tell of")              \
	X(FAULT_SIZE, "fault_size",                                                                \
	  "page faults counted as 4096 bytes each, also those that change nothing: page tables "   \
	  "cannot be read")                                                                        \
	X(FAULT_KIND, "fault_kind",                                                                \
	  "page faults counted as anonymous memory: what was mapped there was not found")          \
	X(FAULT_EXEC, "fault_exec",                                                                \
	  "page faults not counted: the kernel filled the memory of a new program in exec")        \
	X(EPOCH_LATE, "epoch_late",                                                                \
	  "snapshots merged with the next one: they were due faster than they could be written")   \
	X(EVENT_FULL, "event_full", "wake-ups of heaptap lost: the event ring was full")

enum loss {
#define X(id, name, text) LOSS_##id,
	LOSSES(X)
#undef X
		LOSS_COUNT
};

struct loss_counter {
	__u64 count;
	__u64 bytes; /* as weights, fixed point, WEIGHT_BYTES_SHIFT */
};

#endif
