/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A record is a struct perf_event_header, then what belongs to its type, then the sample_id fields.
 * It may go around the end of the ring, and is then put together in a buffer.
 */
#include "proc/perf_records.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <string.h>

#include "util/cursor.h"

/* header.size has 16 bits. */
#define MAX_RECORD 65536

/* PERF_SAMPLE_TIME, the last field of every record. */
#define SAMPLE_ID_SIZE sizeof(uint64_t)

static int read_mmap2(struct cursor body, struct cursor sample_id,
		      const struct perf_handlers *handlers)
{
	struct mapped_file file = {};

	file.pid = cursor_u32(&body);
	cursor_u32(&body); /* the thread */
	file.start = cursor_u64(&body);
	file.length = cursor_u64(&body);
	file.offset = cursor_u64(&body);
	file.dev_major = cursor_u32(&body);
	file.dev_minor = cursor_u32(&body);
	file.inode = cursor_u64(&body);
	file.generation = cursor_u64(&body);
	cursor_u32(&body); /* protection */
	cursor_u32(&body); /* flags */
	file.path = (const char *)body.pos;
	if (body.underflow || !memchr(body.pos, 0, cursor_left(&body)))
		return -EBADMSG;
	file.time_ns = cursor_u64(&sample_id);
	if (handlers->mapped)
		handlers->mapped(handlers->arg, &file);
	return 0;
}

static int read_lost(struct cursor body, const struct perf_handlers *handlers)
{
	uint64_t count;

	cursor_u64(&body); /* the event's id */
	count = cursor_u64(&body);
	if (body.underflow)
		return -EBADMSG;
	if (handlers->lost)
		handlers->lost(handlers->arg, count);
	return 0;
}

static int read_record(const struct perf_event_header *header, const uint8_t *record,
		       const struct perf_handlers *handlers)
{
	struct cursor body, sample_id;

	if (header->size < sizeof(*header) + SAMPLE_ID_SIZE)
		return -EBADMSG;
	body = cursor_init(record + sizeof(*header),
			   header->size - sizeof(*header) - SAMPLE_ID_SIZE);
	sample_id = cursor_init(body.end, SAMPLE_ID_SIZE);
	switch (header->type) {
	case PERF_RECORD_MMAP2:
		return read_mmap2(body, sample_id, handlers);
	case PERF_RECORD_LOST:
		return read_lost(body, handlers);
	default:
		return 0;
	}
}

/* Bytes from a position in the ring, also around its end. */
static void copy_out(void *to, const uint8_t *data, size_t size, uint64_t position, size_t count)
{
	size_t start = position & (size - 1);
	size_t first = count < size - start ? count : size - start;

	memcpy(to, data + start, first);
	memcpy((uint8_t *)to + first, data, count - first);
}

int perf_records_read(const void *data, size_t size, uint64_t tail, uint64_t head,
		      const struct perf_handlers *handlers)
{
	uint8_t record[MAX_RECORD] __attribute__((aligned(8)));
	struct perf_event_header header;
	int err;

	if (head - tail > size)
		return -EBADMSG;
	while (tail != head) {
		if (head - tail < sizeof(header))
			return -EBADMSG;
		copy_out(&header, data, size, tail, sizeof(header));
		if (header.size > head - tail)
			return -EBADMSG;
		copy_out(record, data, size, tail, header.size);
		err = read_record(&header, record, handlers);
		if (err)
			return err;
		tail += header.size;
	}
	return 0;
}
