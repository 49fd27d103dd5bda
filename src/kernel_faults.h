/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The events that tell of page faults, and how page tables are read. Part of kernel.c. */
#ifndef HEAPTAP_KERNEL_FAULTS_H
#define HEAPTAP_KERNEL_FAULTS_H

#include <stdbool.h>

#include "heaptap/fault.h"
#include "util/cleanup.h"

/* Descriptors of programs, and memory shared with them. */
struct fault_parts {
	int enter; /* before a fault is handled */
	int minor; /* after it */
	int major;
	int find; /* find_page_tables() */
	struct page_proof *proof;
	volatile struct page_tables *tables;
};

struct kernel_faults;

/*
 * Attaches the programs to the events of every CPU that is online. Errors: those of
 * perf_event_open(), and -EOPNOTSUPP if a program cannot be attached to an event.
 */
int kernel_faults_open(const struct fault_parts *parts, struct kernel_faults **ret);
void kernel_faults_close(struct kernel_faults *faults);
DEFINE_CLEANUP(kernel_faults, struct kernel_faults *, kernel_faults_close)

/*
 * Finds out how page tables are read. Returns 0; -EOPNOTSUPP if they cannot be, then each fault
 * counts as one page; or why it could not be tried.
 */
int kernel_faults_find_tables(const struct fault_parts *parts);

#endif
