/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names that would break a line, a terminal or a reader of UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "util/printable.h"

static void assert_printable(const char *text, const char *expected)
{
	char copy[64];

	strcpy(copy, text);
	printable(copy);
	assert_string_equal(copy, expected);
}

static void test_kept(void **state)
{
	assert_printable("", "");
	assert_printable("redis-server 1 (%s)~", "redis-server 1 (%s)~");
	assert_printable("\u00e9\u00a0\u0800\ud7ff\uffff\U00010000\U0010ffff",
			 "\u00e9\u00a0\u0800\ud7ff\uffff\U00010000\U0010ffff");
}

static void test_controls(void **state)
{
	assert_printable("a\nb\x1b[31m\x7f", "a?b?[31m?");
	/* C1 controls, U+0080 to U+009F. */
	assert_printable("\xc2\x9b"
			 "31m",
			 "??31m");
}

static void test_invalid(void **state)
{
	assert_printable("\xff\xfe", "??");
	/* Cut short, as the kernel cuts names. */
	assert_printable("caf\xc3", "caf?");
	assert_printable("\xe2\x82", "??");
	assert_printable("\xf0\x90\x80", "???");
	/* Overlong forms, surrogates, beyond Unicode. */
	assert_printable("\xc0\xaf", "??");
	assert_printable("\xe0\x80\xaf", "???");
	assert_printable("\xed\xa0\x80", "???");
	assert_printable("\xf0\x80\x80\xaf", "????");
	assert_printable("\xf4\x90\x80\x80", "????");
	/* What follows is read again. */
	assert_printable("\xe2"
			 "a\u00e9",
			 "?a\u00e9");
}

static void test_repair(void **state)
{
	char text[] = "a\n\xff\0\xfe";

	utf8_repair(text, sizeof(text) - 1);
	assert_memory_equal(text, "a\n?\0?", sizeof(text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_controls),
		cmocka_unit_test(test_invalid),
		cmocka_unit_test(test_repair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
