/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Puts BPF programs on probe points, in the cheapest way this kernel has.
 *
 * The kernel is asked, not its version number: a mode is there if a link of its kind can be made.
 * libbpf 1.1 predates uprobe_multi, so those links are made with bpf() itself.
 */
#ifndef HEAPTAP_PROBE_ATTACH_H
#define HEAPTAP_PROBE_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "probe/points.h"
#include "util/cleanup.h"

enum attach_mode {
	ATTACH_AUTO,
	ATTACH_SESSION, /* uprobe_multi session (6.13): the entry decides whether the return traps
			 */
	ATTACH_MULTI,	/* uprobe_multi (6.6): entry and return */
	ATTACH_PERF,	/* a perf event per point, entry and return */
};

const char *attach_mode_name(enum attach_mode mode);

/* Descriptors of the loaded programs; those the mode does not use are -1. */
struct attach_programs {
	int alloc_session;
	int realloc_session;
	int alloc_enter;
	int alloc_return;
	int realloc_enter;
	int realloc_return;
	int free_enter;
	int throw_enter;
	/* Of allocators that sample by themselves; -1 if they are not wanted. */
	int sampled_session;
	int sampled_enter;
	int sampled_return;
	int sampled_mark;
};

/* Whether this kernel and this user have a mode: by trying it. */
bool attach_has_mode(enum attach_mode mode);

/* The best mode of this kernel, or -EPERM, or -EOPNOTSUPP if it has no BPF uprobes at all. */
int attach_probe_mode(enum attach_mode *ret);

struct attach; /* links; they go away when it is freed, or when the process dies */

/* Links reach these processes; one PID of 0: whoever runs into them. */
int attach_new(enum attach_mode mode, const struct attach_programs *programs, const pid_t *pids,
	       size_t count, struct attach **ret);
void attach_free(struct attach *attach);
DEFINE_CLEANUP(attach, struct attach *, attach_free)

/*
 * attach_replace() makes other links to everything that is attached, for these processes (as
 * in attach_new()), beside those that are there. The programs are to count on links of the new
 * generation from then on, and attach_settle() removes the others. Where it fails nothing has
 * changed. Errors: those of the kernel; processes that are gone are passed over.
 */
int attach_replace(struct attach *attach, const pid_t *pids, size_t count,
		   unsigned int *ret_generation);
void attach_settle(struct attach *attach);
/*
 * From here on, that a process is gone is no error of what is attached: others come, and are linked
 * to all of it. Before, it is -ESRCH.
 */
void attach_expect_others(struct attach *attach);
/* Links one more process. Errors: -ESRCH if it is gone, those of the kernel. */
int attach_add(struct attach *attach, pid_t pid);
void attach_remove(struct attach *attach, pid_t pid);
bool attach_reaches(const struct attach *attach, pid_t pid);

/*
 * Attaches all points of an image; fd is the file, opened. Frees are attached first, so that no
 * block that is counted can be freed unseen. Returns 0 or a negative errno.
 */
int attach_points(struct attach *attach, int fd, const struct module_points *points);
/*
 * Attaches to the place in an image where C++ exceptions begin. Points of functions that throw need
 * it, or PROBE_ENTRY_ONLY.
 */
int attach_throw(struct attach *attach, int fd, uint64_t offset);

/* A program, and the file offsets in an opened file that it is to be attached to. */
struct attach_places {
	int fd;
	int program;
	bool session;	/* it runs at entry and return; its attach type is attach_session_type() */
	bool at_return; /* of the functions that begin there */
	size_t count;
	const uint64_t *offsets;
	const uint64_t *cookies; /* without a generation */
	const uint64_t
		*semaphores; /* file offsets of USDT semaphores, or 0; NULL: there are none */
};

int attach_places(struct attach *attach, const struct attach_places *places);
int attach_session_type(void);

/*
 * Attaches a program of the caller's to file offsets; its expected attach type must be that of
 * attach_entry_type(). at_return: to the returns of the functions that begin there.
 */
int attach_offsets(struct attach *attach, int fd, int program, const uint64_t *offsets,
		   const uint64_t *cookies, size_t count, bool at_return);
/* What attach_offsets() needs in a mode; 0 for none. */
int attach_entry_type(enum attach_mode mode);

#endif
