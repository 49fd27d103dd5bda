/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The records in a perf event's ring buffer. Format: perf_event_open(2), "MMAP layout"; of what it
 * says is optional, we have PERF_SAMPLE_TIME and nothing else.
 */
#ifndef HEAPTAP_PROC_PERF_RECORDS_H
#define HEAPTAP_PROC_PERF_RECORDS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file that a process has mapped. */
struct mapped_file {
	pid_t pid; /* of the process, not of the thread */
	uint64_t start;
	uint64_t length;
	uint64_t offset; /* in the file, of start */
	unsigned int dev_major;
	unsigned int dev_minor;
	uint64_t inode; /* 0: no file; the real one, where /proc shows overlayfs' own */
	uint64_t generation;
	const char *path; /* as the process sees it, or "//anon" and the like */
	uint64_t time_ns; /* of the clock that the event was opened with */
};

struct perf_handlers {
	void (*mapped)(void *arg, const struct mapped_file *file);
	void (*lost)(void *arg, uint64_t count);
	void *arg;
};

/*
 * Hands the records between tail and head to their handlers; those without one are passed over.
 * data is the ring, size a power of two; tail and head count up and are not reduced to it. Strings
 * are good until the handler returns. Returns 0, or -EBADMSG if the bytes are no records: what
 * follows cannot be read.
 */
int perf_records_read(const void *data, size_t size, uint64_t tail, uint64_t head,
		      const struct perf_handlers *handlers);

#endif
