/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What kernel.c shares with the files that have parts of kernel.h. */
#ifndef HEAPTAP_KERNEL_PRIVATE_H
#define HEAPTAP_KERNEL_PRIVATE_H

#include <bpf/libbpf.h>

#include "kernel.h"
/* After the types of its variables. */
#include "heaptap/throw.h"

#include "heaptap.skel.h"

/* Programs at syscalls: at most so many are in use. */
#define MAPPING_PROGRAMS 10

/* The programs that count mappings. */
struct kernel_mappings {
	struct ring_buffer *ring; /* NULL unless the account is kept */
	int (*seen)(void *arg, const struct mapping_event *event);
	void *arg;
	int err; /* of seen() */
	struct bpf_program *programs[MAPPING_PROGRAMS];
	struct bpf_link *links[MAPPING_PROGRAMS];
	size_t count;
};

struct kernel {
	struct heaptap_bpf *object;
	struct ring_buffer *ring;
	struct ring_buffer *throw_ring;
	__u32 event_types; /* taken and not handed on */
	struct attach_programs programs;
	struct threads *threads; /* or NULL */
	struct kernel_mappings mappings;
	__u64 noted_losses[LOSS_COUNT];
	int cpu_count;
	__u32 quiet_epoch;   /* no program adds to it any more, nor to those before */
	__u64 merged_epochs; /* see kernel_note_merged() */
};

/* Before the object is loaded: whether a program is, and with which attach type; 0: its own. */
void kernel_choose_program(struct bpf_program *program, bool wanted, int attach_type);
/* -1 if it is not loaded. */
int kernel_program_fd(const struct bpf_program *program);

/* Before the object is loaded: whether it has the programs for allocators that sample. */
void kernel_samplers_choose(struct heaptap_bpf *object, bool wanted, enum attach_mode mode);
/* Fills in the descriptors of those programs; -1 for those that are not loaded. */
void kernel_samplers_programs(const struct heaptap_bpf *object, struct attach_programs *programs);

/* Before the object is loaded: which programs at syscalls are, for a mode. */
void kernel_mappings_choose(struct heaptap_bpf *object, enum record_mode record,
			    enum mappings_mode mappings);
void kernel_mappings_close(struct kernel *kernel);
/* How often the kernel did not run one of them, because it was running on that CPU already. */
__u64 kernel_mappings_missed(const struct kernel *kernel);

#endif
