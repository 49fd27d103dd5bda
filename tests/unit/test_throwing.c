/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* points: functions that may leave with an exception, and where exceptions begin. */
#include "linkage_fixture.h"

/* THROW is called where there is no memory. */
static const char allocator[] =
	"__asm__(\".section .gcc_except_table,\\\"a\\\"\\n.byte 0\\n.text\");\n"
	"void __cxa_throw(void);\n"
	"__attribute__((noipa, visibility(\"hidden\"))) void own_throw(void) { for (;;); }\n"
	"#ifdef OWN\n"
	"void _Unwind_RaiseException(void) __attribute__((alias(\"own_throw\")));\n"
	"#endif\n"
	"static char pool[4096]; static unsigned long used;\n"
	"void *_Znwm(unsigned long n) {\n"
	"  if (used + n > sizeof(pool)) THROW();\n"
	"  return pool + (used += n) - n; }\n"
	"void _ZdlPv(void *p) { used -= p != 0; }\n";

static const char unwinder[] = "int _Unwind_RaiseException(void *e) { return e != 0; }\n";

#define SHARED "-shared -fPIC -fno-builtin -nostartfiles -O2 "

static void check(const char *options, bool with_unwinder, bool throws)
{
	struct linked linked;

	linked_init(&linked, -1, NULL);
	fixture_compile("allocator", ".c", allocator, options);
	linked_add(&linked, fixture_path("allocator"));
	if (with_unwinder) {
		fixture_compile("unwinder", ".c", unwinder, SHARED);
		linked_add(&linked, fixture_path("unwinder"));
	}
	linked_find(&linked);
	linked_check_points(&linked, 0, "_Znwm _ZdlPv");
	assert_int_equal(linked_point(&linked, 0, "_Znwm")->spec.flags,
			 throws ? 0 : PROBE_ENTRY_ONLY);
	assert_int_equal(linked.points->modules[0].throws, throws);
	if (with_unwinder)
		assert_true(linked.points->modules[1].has_unwinder);
	linked_fini(&linked);
}

static void test_imported(void **state)
{
	check(SHARED "-DTHROW=__cxa_throw", true, true);
	check(SHARED "-DTHROW=__cxa_throw", false, false);
}

/* Linked statically and stripped: another file's unwinder is there for others. */
static void test_nameless(void **state)
{
	check(SHARED "-DTHROW=own_throw -s", true, false);
	check(SHARED "-DTHROW=own_throw -s", false, false);
}

static void test_own(void **state)
{
	check(SHARED "-DTHROW=own_throw -DOWN", false, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_imported),
		cmocka_unit_test(test_nameless),
		cmocka_unit_test(test_own),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
