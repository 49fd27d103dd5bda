/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* perf_records: rings made by hand, and what damage in them leads to. */
#include <errno.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proc/perf_records.h"
#include "util/cleanup.h"

#define RING_SIZE 1024

/* Positions count up from anywhere; the ring is written as the kernel does. */
struct ring {
	uint8_t data[RING_SIZE];
	uint64_t tail;
	uint64_t head;
};

/* What the handlers were told. */
struct told {
	struct mapped_file files[64];
	char paths[64][32];
	size_t count;
	uint64_t lost;
};

static void on_mapped(void *arg, const struct mapped_file *file)
{
	struct told *told = arg;

	assert_true(told->count < ARRAY_SIZE(told->files));
	told->files[told->count] = *file;
	snprintf(told->paths[told->count++], sizeof(told->paths[0]), "%s", file->path);
}

static void on_lost(void *arg, uint64_t count)
{
	struct told *told = arg;

	told->lost += count;
}

static int read_ring(const struct ring *ring, struct told *told)
{
	const struct perf_handlers handlers = {on_mapped, on_lost, told};

	memset(told, 0, sizeof(*told));
	return perf_records_read(ring->data, sizeof(ring->data), ring->tail, ring->head, &handlers);
}

static void put(struct ring *ring, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		ring->data[ring->head++ % RING_SIZE] = ((const uint8_t *)bytes)[i];
}

static void put_u64(struct ring *ring, uint64_t value)
{
	put(ring, &value, sizeof(value));
}

static void put_header(struct ring *ring, uint32_t type, uint16_t size)
{
	struct perf_event_header header = {.type = type, .size = size};

	put(ring, &header, sizeof(header));
}

static void put_mmap2(struct ring *ring, uint32_t pid, const char *path, uint64_t time_ns)
{
	char padded[64] = "";
	const uint32_t ids[] = {pid, pid + 1}, device[] = {8, 1}, protection[] = {5, 2};
	size_t length = (strlen(path) + 8) / 8 * 8;

	memcpy(padded, path, strlen(path));
	put_header(ring, PERF_RECORD_MMAP2, 8 + 8 + 24 + 24 + 8 + length + 8);
	put(ring, ids, sizeof(ids));
	put_u64(ring, 0x7f0000001000);
	put_u64(ring, 0x2000);
	put_u64(ring, 0x3000);
	put(ring, device, sizeof(device));
	put_u64(ring, 4711);
	put_u64(ring, 99);
	put(ring, protection, sizeof(protection));
	put(ring, padded, length);
	put_u64(ring, time_ns);
}

static void put_lost(struct ring *ring, uint64_t count)
{
	put_header(ring, PERF_RECORD_LOST, 8 + 16 + 8);
	put_u64(ring, 1);
	put_u64(ring, count);
	put_u64(ring, 12345);
}

static void test_fields(void **state)
{
	struct ring ring = {};
	struct told told;

	put_mmap2(&ring, 42, "/usr/lib/a.so", 1000);
	assert_int_equal(read_ring(&ring, &told), 0);
	assert_int_equal(told.count, 1);
	assert_int_equal(told.files[0].pid, 42);
	assert_int_equal(told.files[0].start, 0x7f0000001000);
	assert_int_equal(told.files[0].length, 0x2000);
	assert_int_equal(told.files[0].offset, 0x3000);
	assert_int_equal(told.files[0].dev_major, 8);
	assert_int_equal(told.files[0].dev_minor, 1);
	assert_int_equal(told.files[0].inode, 4711);
	assert_int_equal(told.files[0].generation, 99);
	assert_int_equal(told.files[0].time_ns, 1000);
	assert_string_equal(told.paths[0], "/usr/lib/a.so");
}

static void test_empty(void **state)
{
	struct ring ring = {.tail = 4096, .head = 4096};
	struct told told;

	assert_int_equal(read_ring(&ring, &told), 0);
	assert_int_equal(told.count, 0);
}

static void test_order_and_others(void **state)
{
	struct ring ring = {};
	struct told told;

	put_mmap2(&ring, 1, "/a", 10);
	/* Of a type that nobody asked for. */
	put_header(&ring, PERF_RECORD_FORK, 8 + 24 + 8);
	for (int i = 0; i < 4; i++)
		put_u64(&ring, i);
	put_lost(&ring, 7);
	put_mmap2(&ring, 2, "//anon", 20);
	put_lost(&ring, 1);
	assert_int_equal(read_ring(&ring, &told), 0);
	assert_int_equal(told.count, 2);
	assert_string_equal(told.paths[0], "/a");
	assert_string_equal(told.paths[1], "//anon");
	assert_int_equal(told.files[1].time_ns, 20);
	assert_int_equal(told.lost, 8);
}

static void test_no_handlers(void **state)
{
	const struct perf_handlers handlers = {};
	struct ring ring = {};

	put_mmap2(&ring, 1, "/a", 10);
	put_lost(&ring, 7);
	assert_int_equal(perf_records_read(ring.data, RING_SIZE, ring.tail, ring.head, &handlers),
			 0);
}

/* A record, and a second one, from every position: headers and fields around the end too. */
static void test_wrap_around(void **state)
{
	for (uint64_t at = 0; at < 2 * RING_SIZE; at += 8) {
		struct ring ring = {.tail = UINT64_MAX / 2 / RING_SIZE * RING_SIZE + at};
		struct told told;

		ring.head = ring.tail;
		put_mmap2(&ring, 5, "/a/path/of/some/length", 77);
		put_lost(&ring, 3);
		assert_int_equal(read_ring(&ring, &told), 0);
		assert_int_equal(told.count, 1);
		assert_int_equal(told.files[0].inode, 4711);
		assert_int_equal(told.files[0].time_ns, 77);
		assert_string_equal(told.paths[0], "/a/path/of/some/length");
		assert_int_equal(told.lost, 3);
	}
}

/* The positions themselves may run over. */
static void test_positions_run_over(void **state)
{
	struct ring ring = {.tail = -(uint64_t)16, .head = -(uint64_t)16};
	struct told told;

	put_mmap2(&ring, 5, "/a", 1);
	assert_int_equal(read_ring(&ring, &told), 0);
	assert_int_equal(told.count, 1);
}

static void test_full_ring(void **state)
{
	struct ring ring = {.tail = 40, .head = 40};
	struct told told;

	for (int i = 0; i < RING_SIZE / 32; i++)
		put_lost(&ring, 1);
	assert_int_equal(ring.head - ring.tail, RING_SIZE);
	assert_int_equal(read_ring(&ring, &told), 0);
	assert_int_equal(told.lost, RING_SIZE / 32);
	ring.head += 8;
	assert_int_equal(read_ring(&ring, &told), -EBADMSG);
}

/* The head in the middle of a record; what is before it is told. */
static void test_truncated(void **state)
{
	struct ring ring = {};
	struct told told;
	uint64_t first, end;

	put_mmap2(&ring, 1, "/a", 10);
	first = ring.head;
	put_mmap2(&ring, 2, "/b", 20);
	end = ring.head;
	for (ring.head = first + 1; ring.head < end; ring.head++) {
		assert_int_equal(read_ring(&ring, &told), -EBADMSG);
		assert_int_equal(told.count, 1);
	}
}

/* Every size that a header may claim, of every type that is read. */
static void test_wrong_sizes(void **state)
{
	static const uint32_t types[] = {PERF_RECORD_MMAP2, PERF_RECORD_LOST, PERF_RECORD_EXIT};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		for (unsigned int size = 0; size < RING_SIZE + 64; size++) {
			struct ring ring = {};
			struct told told;

			put_header(&ring, types[i], size);
			ring.head = size < 8 || size > RING_SIZE ? RING_SIZE : size;
			if (size < 16 || size > RING_SIZE ||
			    (types[i] == PERF_RECORD_LOST && size < 32) ||
			    (types[i] == PERF_RECORD_MMAP2 && size < 81))
				assert_int_equal(read_ring(&ring, &told), -EBADMSG);
			else
				assert_int_equal(read_ring(&ring, &told), 0);
		}
	}
}

static void test_path_without_end(void **state)
{
	struct ring ring = {};
	struct told told;

	put_mmap2(&ring, 1, "/a", 10);
	memset(ring.data + 72, 'x', ring.head - 72 - 8);
	assert_int_equal(read_ring(&ring, &told), -EBADMSG);
	assert_int_equal(told.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),		 cmocka_unit_test(test_empty),
		cmocka_unit_test(test_order_and_others), cmocka_unit_test(test_no_handlers),
		cmocka_unit_test(test_wrap_around),	 cmocka_unit_test(test_positions_run_over),
		cmocka_unit_test(test_full_ring),	 cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_wrong_sizes),	 cmocka_unit_test(test_path_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
