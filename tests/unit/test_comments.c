/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* comments: what a snapshot says about itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "heaptap/weight.h"
#include "profile/accounts.h"
#include "profile/comments.h"

static int no_chunk(void *arg, uint64_t id, struct stack_chunk *ret)
{
	return -1;
}

static struct loss_counter losses[LOSS_COUNT];

/* The first comment that begins so; NULL if none does. */
static const char *comment_of(const struct profile *profile, const char *begin)
{
	for (size_t i = 0; i < profile->comment_count; i++) {
		const char *comment = profile->strings[profile->comments[i]];

		if (!strncmp(comment, begin, strlen(begin)))
			return comment;
	}
	return NULL;
}

static void comment(const struct snapshot_input *input, struct profile **ret)
{
	assert_int_equal(profile_new(ret), 0);
	snapshot_comment(*ret, input);
	assert_int_equal(profile_error(*ret), 0);
}

/* 16 samples, each of which adds the square of 1000 bytes to the variance of what was allocated. */
static void add_samples(struct heap *heap, enum account account, bool freed)
{
	const struct site_key key = {.account = account, .serial = 1, .stack_id = 1};
	struct site_counters counters = {
		.alloc = {.bytes = 16000ull << WEIGHT_BYTES_SHIFT,
			  .objects = 16ull << WEIGHT_OBJECTS_SHIFT,
			  .variance = 16ull << WEIGHT_VARIANCE_SHIFT},
	};

	if (freed)
		counters.freed = counters.alloc;
	assert_int_equal(heap_add(heap, &key, &counters), 0);
}

static void test_error_of_what_was_allocated(void **state)
{
	struct heap *heap CLEANUP(heap) = NULL;
	struct profile *profile CLEANUP(profile) = NULL;
	const char *said;

	assert_int_equal(heap_new(no_chunk, NULL, &heap), 0);
	/* Nothing is in use of a process that has ended. */
	add_samples(heap, ACCOUNT_SAMPLED, true);
	comment(&(struct snapshot_input){.heap = heap,
					 .accounts = ACCOUNT_BIT(ACCOUNT_SAMPLED),
					 .losses = losses,
					 .scope = "",
					 .reason = "",
					 .own_samples = true,
					 .sample_bytes = 1000},
		&profile);
	said = comment_of(profile, "in use: not known");
	assert_non_null(said);
	assert_non_null(strstr(said, "alloc_space 16000, standard error 4000 (25.00 %)"));
}

static void test_processes_that_are_not_probed(void **state)
{
	struct heap *heap CLEANUP(heap) = NULL;
	struct snapshot_input input = {.losses = losses, .scope = "", .reason = ""};

	assert_int_equal(heap_new(no_chunk, NULL, &heap), 0);
	input.heap = heap;
	for (input.refused_processes = 0; input.refused_processes < 3; input.refused_processes++) {
		struct profile *profile CLEANUP(profile) = NULL;
		const char *said;

		comment(&input, &profile);
		said = comment_of(profile, "not probed: ");
		assert_int_equal(!said, !input.refused_processes);
		if (input.refused_processes == 1)
			assert_non_null(strstr(said, ": 1 process that"));
		if (input.refused_processes == 2)
			assert_non_null(strstr(said, ": 2 processes that"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_that_are_not_probed),
		cmocka_unit_test(test_error_of_what_was_allocated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
