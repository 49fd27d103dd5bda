/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ranges against a model that knows every page, through random calls. */
#include "elf_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "profile/address_space.h"

#define PAGE	4096ull
#define PAGES	64
#define MAPPERS 8

struct page {
	int mapper; /* 0: unknown, -1: nobody's */
	bool reserved;
};

struct model {
	struct page pages[PAGES];
	struct page taken[PAGES]; /* of the only thread */
	size_t taken_count;
	size_t taken_at;
};

struct sums {
	int64_t mapped[MAPPERS];
	int64_t objects[MAPPERS];
	int64_t reserved[MAPPERS];
	/* Ever. */
	int64_t all_mapped[MAPPERS];
	int64_t all_objects[MAPPERS];
};

static int changed(void *arg, const struct mapper *mapper, const struct mapped_change *change)
{
	struct sums *sums = arg;

	sums->mapped[mapper->stack_id] += (int64_t)change->mapped - (int64_t)change->unmapped;
	sums->objects[mapper->stack_id] +=
		(int64_t)change->mapped_objects - (int64_t)change->unmapped_objects;
	sums->reserved[mapper->stack_id] += change->reserved;
	sums->all_mapped[mapper->stack_id] += change->mapped;
	sums->all_objects[mapper->stack_id] += change->mapped_objects;
	return 0;
}

static void check(const struct model *model, const struct sums *sums,
		  const struct address_space *space)
{
	uint64_t from, to;
	int64_t mapped[MAPPERS] = {}, reserved[MAPPERS] = {};

	for (size_t i = 0; i < PAGES; i++) {
		int mapper = model->pages[i].mapper;

		assert_int_equal(
			address_space_gap(space, (i + 1) * PAGE, (i + 2) * PAGE, &from, &to),
			mapper == 0);
		if (mapper <= 0)
			continue;
		mapped[mapper] += PAGE;
		if (model->pages[i].reserved)
			reserved[mapper] += PAGE;
	}
	for (int i = 0; i < MAPPERS; i++) {
		assert_int_equal(sums->mapped[i], mapped[i]);
		assert_int_equal(sums->reserved[i], reserved[i]);
		assert_true(sums->objects[i] >= 0);
		assert_int_equal(sums->objects[i] > 0, mapped[i] > 0);
	}
}

static size_t pick(size_t limit)
{
	return (size_t)random() % limit;
}

static void set(struct model *model, size_t from, size_t count, int mapper)
{
	for (size_t i = from; i < from + count; i++)
		model->pages[i] = (struct page){.mapper = mapper};
}

static void model_take(struct model *model, size_t from, size_t count)
{
	memcpy(model->taken, model->pages + from, count * sizeof(*model->taken));
	model->taken_count = count;
	model->taken_at = from;
	set(model, from, count, 0);
}

static void model_move(struct model *model, size_t to, size_t count, bool anonymous, int mapper)
{
	set(model, to, count, 0);
	for (size_t i = 0; i < count; i++) {
		struct page page = {};

		if (i < model->taken_count) {
			page = model->taken[i];
			if (page.mapper > 0)
				page.mapper = mapper;
			else if (!page.mapper && anonymous)
				page.mapper = -1;
		} else if (anonymous) {
			page.mapper = mapper;
		}
		model->pages[to + i] = page;
	}
	model->taken_count = 0;
}

static void step(struct model *model, struct sums *sums, struct address_space *space)
{
	size_t from = pick(PAGES), count = 1 + pick(PAGES - from);
	uint64_t start = (from + 1) * PAGE, size = count * PAGE;
	int id = 1 + pick(MAPPERS - 1);
	const struct mapper mapper = {.stack_id = id};
	size_t to = pick(PAGES), grown = 1 + pick(PAGES - to);
	bool anonymous = pick(2), again = pick(2);
	struct sums before = *sums;

	switch (pick(7)) {
	case 0:
		assert_int_equal(address_space_add(space, start, size, &mapper), 0);
		set(model, from, count, id);
		break;
	case 1:
		assert_int_equal(address_space_add(space, start, size, NULL), 0);
		set(model, from, count, -1);
		break;
	case 2:
		assert_int_equal(address_space_remove(space, start, size), 0);
		set(model, from, count, 0);
		break;
	case 3:
		assert_int_equal(address_space_reserve(space, start, size, again), 0);
		for (size_t i = from; i < from + count; i++)
			if (model->pages[i].mapper)
				model->pages[i].reserved = again;
		break;
	case 4:
		assert_int_equal(address_space_take(space, 7, start, size), 0);
		model_take(model, from, count);
		break;
	case 5:
		assert_int_equal(address_space_take(space, 7, start, size), 0);
		assert_int_equal(address_space_take_back(space, 7), 0);
		/* Nothing was mapped anew. */
		assert_memory_equal(sums, &before, sizeof(before));
		break;
	default:
		assert_int_equal(address_space_take(space, 7, start, size), 0);
		model_take(model, from, count);
		assert_int_equal(address_space_move(space, 7, (to + 1) * PAGE, grown * PAGE,
						    anonymous, &mapper),
				 0);
		model_move(model, to, grown, anonymous, id);
	}
}

static void test_random(void **state)
{
	for (unsigned int seed = 0; seed < 200; seed++) {
		struct address_space *space;
		struct model model = {};
		struct sums sums = {};

		srandom(seed);
		assert_int_equal(address_space_new(changed, &sums, &space), 0);
		for (int i = 0; i < 500; i++) {
			step(&model, &sums, space);
			check(&model, &sums, space);
		}
		address_space_free(space);
	}
}

/* What a thread took and did not give back is forgotten with the oldest. */
static void test_threads(void **state)
{
	const struct mapper mapper = {.stack_id = 1};
	struct address_space *space;
	struct sums sums = {};

	assert_int_equal(address_space_new(changed, &sums, &space), 0);
	assert_int_equal(address_space_add(space, PAGE, 3000 * PAGE, &mapper), 0);
	for (uint32_t tid = 1; tid <= 3000; tid++)
		assert_int_equal(address_space_take(space, tid, tid * PAGE, PAGE), 0);
	assert_int_equal(sums.mapped[1], 0);
	assert_int_equal(sums.objects[1], 0);
	assert_int_equal(address_space_take_back(space, 1), -ENOENT);
	assert_int_equal(address_space_move(space, 1, PAGE, PAGE, true, &mapper), -ENOENT);
	assert_int_equal(sums.mapped[1], 0);
	assert_int_equal(address_space_take_back(space, 3000), 0);
	assert_int_equal(sums.mapped[1], PAGE);
	assert_int_equal(sums.objects[1], 1);
	address_space_free(space);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
