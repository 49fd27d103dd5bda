/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* prune: which frames of a stack go, and expressions that are not to be trusted. */
#include "profile_fixture.h"

#include "profile/prune.h"

/* The folded stack of one sample with these expressions. */
static void assert_pruned(const char *stack, const char *drop, const char *keep,
			  const char *expected)
{
	struct profile *profile CLEANUP(profile) = fixture_profile();
	char line[512];

	fixture_sample(profile, stack, 1, 1);
	profile->drop_frames = profile_string(profile, drop);
	profile->keep_frames = profile_string(profile, keep);
	snprintf(line, sizeof(line), "%s 1\n", expected);
	fixture_assert_text(profile, "folded", 1, line);
}

static void assert_simplified(const char *name, const char *expected)
{
	size_t length = prune_simplify(&name);
	char simple[128];

	snprintf(simple, sizeof(simple), "%.*s", (int)length, name);
	assert_string_equal(simple, expected);
}

static void test_simplify(void **state)
{
	assert_simplified("", "");
	assert_simplified("malloc", "malloc");
	assert_simplified(".malloc", "malloc");
	assert_simplified("operator new(unsigned long)", "operator new");
	assert_simplified("A::operator()(int) const", "A::operator()");
	assert_simplified("(anonymous namespace)::f(int)", "(anonymous namespace)::f");
	assert_simplified("ns::(anonymous namespace)::A::operator()()",
			  "ns::(anonymous namespace)::A::operator()");
	assert_simplified("f(void (*)(int))", "f");
	assert_simplified("(anonymous", "");
}

static void test_drop(void **state)
{
	assert_pruned("malloc f main", "malloc", "", "main;f");
	/* The match nearest to the root, and all that it called. */
	assert_pruned("x malloc y malloc f main", "malloc", "", "main;f");
	/* Whole names only. */
	assert_pruned("malloc2 f main", "malloc", "", "main;f;malloc2");
	assert_pruned("xmalloc f main", "malloc", "", "main;f;xmalloc");
	assert_pruned("a f main", "x|a|y", "", "main;f");
	/* Without arguments. */
	assert_pruned("malloc(int) f main", "malloc", "", "main;f");
	assert_pruned("malloc f main", "", "", "main;f;malloc");
}

static void test_never_everything(void **state)
{
	assert_pruned("malloc", "malloc", "", "malloc");
	assert_pruned("a b c", ".*", "", "c;b;a");
	/* Frames before the first that does not match stay. */
	assert_pruned("malloc f main start", "main|start|malloc", "", "start;main;f");
}

static void test_keep(void **state)
{
	assert_pruned("malloc alloc f main", ".*alloc", "alloc", "main;f;alloc");
	assert_pruned("malloc alloc f main", ".*alloc", "al", "main;f");
	assert_pruned("malloc alloc f main", ".*alloc", ".*", "main;f;alloc;malloc");
}

static void test_inlined(void **state)
{
	/* An inlined call goes alone, with what stands beneath. */
	assert_pruned("leaf a|malloc|b main", "malloc", "", "main;b");
	assert_pruned("leaf a|malloc main", "malloc", "", "main");
	/* The outermost of two matches. */
	assert_pruned("malloc|a|malloc|b main", "malloc", "", "main;b");
}

static void test_places_without_names(void **state)
{
	assert_pruned(". f main", ".*0x.*", "", "main;f;prog+0x1010");
	assert_pruned("malloc . main", "malloc", "", "main;prog+0x1020");
}

static void test_go_groups(void **state)
{
	assert_pruned("malloc f main", "(?:malloc|calloc)", "", "main;f");
	assert_pruned("(?:x f main", "\\(?:x", "", "main;f;(?:x");
}

/* None of these prunes anything, and none takes long. */
static void test_bad_expressions(void **state)
{
	static const char *const bad[] = {
		"(malloc",
		"malloc|[",
		"malloc\\",
		"*(",
		"malloc|(((((((((a+)+)+)+)+)+)+)+)+)+",
		"malloc|((a{1,255}){1,255}){1,255}",
		"malloc|(a*)*\\1",
	};
	char deep[2 * 5000 + 16] = "malloc|", longest[6000] = "malloc|";

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_pruned("malloc f main", bad[i], "", "main;f;malloc");
	memset(deep + strlen(deep), '(', 5000);
	assert_pruned("malloc f main", deep, "", "main;f;malloc");
	memset(longest + strlen(longest), 'a', sizeof(longest) - 16);
	assert_pruned("malloc f main", longest, "", "main;f;malloc");
	/* What cannot be kept is not dropped. */
	assert_pruned("malloc f main", "malloc", "(", "main;f;malloc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simplify),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_never_everything),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_inlined),
		cmocka_unit_test(test_places_without_names),
		cmocka_unit_test(test_go_groups),
		cmocka_unit_test(test_bad_expressions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
