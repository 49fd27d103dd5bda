/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* prune: which frames of a stack go, and the regular expressions that say so. */
#include "profile_fixture.h"

#include <errno.h>

#include "profile/pattern.h"
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

static bool matches(const char *expression, const char *text)
{
	struct pattern *pattern CLEANUP(pattern) = NULL;

	assert_int_equal(pattern_new(expression, &pattern), 0);
	return pattern_matches(pattern, text, strlen(text));
}

static void test_patterns(void **state)
{
	static const struct {
		const char *expression, *yes, *no;
	} cases[] = {
		{"^abc$", "abc", "xabc"},
		{"b", "abc", "ac"},
		{"^(a|bc|d)$", "bc", "b"},
		{"^a*$", "aaa", "aab"},
		{"^a+b$", "aab", "b"},
		{"^(ab)?c$", "abc", "abbc"},
		{"^(ab)*?c$", "ababc", "abac"},
		{"^a{2}$", "aa", "aaa"},
		{"^a{2,}$", "aaaa", "a"},
		{"^a{1,3}$", "aaa", "aaaa"},
		{"^(a|b){2}c$", "bac", "bc"},
		{"^a{,2}$", "a{,2}", "aa"},
		{"^[a-c]x$", "bx", "dx"},
		{"^[^a-c]$", "d", "b"},
		{"^[]a]$", "]", "b"},
		{"^[a\\]-]$", "-", "b"},
		{"^[[:digit:]x]+$", "1x2", "1y2"},
		{"^\\w+\\.\\d$", "a_Z.1", "a-Z.1"},
		{"^\\S\\D$", "ab", "a1"},
		{"^\\x41$", "A", "B"},
		{"^.$", "a", "\n"},
		{"^(?:a|b)$", "b", "c"},
		{"^(?P<name>a)$", "a", "name"},
		{"^(|a)b$", "b", "c"},
		{"^operator new(\\[\\])?$", "operator new[]", "operator new[["},
		{"^(a)|(b)$", "ax", "xbx"},
		{"\\Aa\\z", "a", "ab"},
		{"^$", "", "a"},
		{"^(a*)*(|b)+$", "aab", "ba"},
	};
	static const char *const invalid[] = {
		"(",   ")",   "a)", "[a",  "[",	  "[b-a]", "\\",
		"\\1", "\\y", "*",  "a**", "a|*", "(?P<a", "a{3,2}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!matches(cases[i].expression, cases[i].yes) ||
		    matches(cases[i].expression, cases[i].no))
			fail_msg("%s", cases[i].expression);
	}
	for (size_t i = 0; i < ARRAY_SIZE(invalid); i++) {
		struct pattern *pattern = NULL;

		if (pattern_new(invalid[i], &pattern) != -EINVAL)
			fail_msg("%s", invalid[i]);
	}
}

/* Each of these takes other implementations for ever, or all memory. */
static void test_hard_patterns(void **state)
{
	char deep[20000], text[10000];
	struct pattern *pattern = NULL;

	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_false(matches("^((((((((|(a+)+)+)+)+)+)+)+)+)+b$", text));
	assert_false(matches("^(a*)*(a*)*(a*)*(a|aa)*(a|b)*c$", text));
	assert_true(matches("^(a?){500}a*$", text));
	assert_int_equal(pattern_new("((a{1,255}){1,255}){1,255}", &pattern), -EINVAL);
	memset(deep, '(', sizeof(deep));
	deep[sizeof(deep) - 1] = '\0';
	assert_int_equal(pattern_new(deep, &pattern), -EINVAL);
}

/* A pattern that exceeds its bound again and again is given up, so that a profile cannot hang us.
 */
static void test_given_up_patterns(void **state)
{
	struct pattern *pattern CLEANUP(pattern) = NULL;
	char text[10000];

	memset(text, 'a', sizeof(text));
	assert_int_equal(pattern_new("^(b|(a+)+c)$", &pattern), 0);
	assert_true(pattern_matches(pattern, "b", 1));
	for (int i = 0; i < 100; i++)
		assert_false(pattern_matches(pattern, text, sizeof(text)));
	assert_false(pattern_matches(pattern, "b", 1));
}

static void test_bad_expressions(void **state)
{
	assert_pruned("malloc f main", "malloc|(", "", "main;f;malloc");
	assert_pruned("malloc f main", "malloc|a**", "", "main;f;malloc");
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
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_hard_patterns),
		cmocka_unit_test(test_given_up_patterns),
		cmocka_unit_test(test_bad_expressions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
