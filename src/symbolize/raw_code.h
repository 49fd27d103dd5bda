/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names for the code of one process that no file backs: the kernel's vdso, and what a JIT compiler
 * made. Also keeps the process's root open, for the files that belong to it.
 */
#ifndef HEAPTAP_SYMBOLIZE_RAW_CODE_H
#define HEAPTAP_SYMBOLIZE_RAW_CODE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/cleanup.h"

struct raw_code;

/* Where the code lies, for a profile's mapping. */
struct raw_mapping {
	uint64_t start;
	uint64_t end;
	const char *name;
	const char *build_id;
};

struct raw_name {
	const char *name;		   /* raw; valid until the next refresh; NULL if unknown */
	const struct raw_mapping *mapping; /* the vdso's, as long as the raw_code lives, or NULL */
};

int raw_code_new(pid_t pid, struct raw_code **ret);
void raw_code_free(struct raw_code *code);
DEFINE_CLEANUP(raw_code, struct raw_code *, raw_code_free)

/*
 * Takes note of the process as it is now: cheap, and to be called while it lives, so that names can
 * be looked up when it has exited. Returns 0, also for one that has exited, or -ENOMEM.
 */
int raw_code_refresh(struct raw_code *code);

/*
 * The name at an address. Reads the JIT compiler's file if it has changed since the last refresh.
 * Returns 0, also if there is none, or -ENOMEM.
 */
int raw_code_lookup(struct raw_code *code, uint64_t address, struct raw_name *ret);

/* The process's root, or -1. Owned by the raw_code, which may replace it at the next refresh. */
int raw_code_root(const struct raw_code *code);

/* Lines of the JIT compiler's file that made no sense. */
size_t raw_code_malformed(const struct raw_code *code);

#endif
