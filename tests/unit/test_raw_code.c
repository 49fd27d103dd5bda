/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* raw_code and its place in the symbolizer: names for this very process's vdso and JIT code. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symbolize/raw_code.h"
#include "symbolize/symbolizer.h"

static char map_path[64];

static int setup(void **state)
{
	snprintf(map_path, sizeof(map_path), "/tmp/perf-%d.map", getpid());
	return 0;
}

static int teardown(void **state)
{
	return unlink(map_path) && errno != ENOENT ? -1 : 0;
}

static void write_map(const char *mode, const char *text)
{
	FILE *file = fopen(map_path, mode);

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void test_vdso(void **state)
{
	struct raw_code *code CLEANUP(raw_code) = NULL;
	uint64_t base = getauxval(AT_SYSINFO_EHDR), address;
	void *vdso = dlopen("linux-vdso.so.1", RTLD_NOLOAD | RTLD_NOW);
	struct raw_name name;

	if (!base || !vdso)
		skip();
	address = (uintptr_t)dlsym(vdso, "__vdso_getcpu");
	assert_int_not_equal(address, 0);
	assert_int_equal(raw_code_new(getpid(), &code), 0);
	assert_int_equal(raw_code_lookup(code, address, &name), 0);
	assert_null(name.mapping);
	assert_int_equal(raw_code_refresh(code), 0);
	assert_int_equal(raw_code_lookup(code, address + 1, &name), 0);
	/* Also known as getcpu, weakly. */
	assert_string_equal(name.name, "__vdso_getcpu");
	assert_string_equal(name.mapping->name, "[vdso]");
	assert_int_equal(name.mapping->start, base);
	assert_true(name.mapping->end > address);
	assert_int_equal(raw_code_lookup(code, (uintptr_t)test_vdso, &name), 0);
	assert_null(name.name);
	assert_null(name.mapping);
	dlclose(vdso);
}

static const char *jit_name(struct symbolizer *symbolizer, uint64_t address)
{
	struct symbolized_frame frame;

	assert_int_equal(symbolizer_lookup_raw(symbolizer, getpid(), address, &frame), 0);
	assert_null(frame.mapping);
	return frame.line_count ? frame.lines[0].name : "(none)";
}

static void test_jit(void **state)
{
	struct symbolizer *symbolizer CLEANUP(symbolizer) = NULL;
	const char *name;

	assert_int_equal(symbolizer_new(&(struct symbolizer_options){}, &symbolizer), 0);
	assert_int_equal(symbolizer_refresh(symbolizer, getpid()), 0);
	assert_string_equal(jit_name(symbolizer, 0x1008), "(none)");
	write_map("w", "1000 10 first\n");
	assert_int_equal(symbolizer_refresh(symbolizer, getpid()), 0);
	name = jit_name(symbolizer, 0x1008);
	assert_string_equal(name, "first");
	assert_string_equal(jit_name(symbolizer, 0x2008), "(none)");
	write_map("a", "1000 10 moved\n2000 10 second\n");
	/* As of the last refresh. */
	assert_string_equal(jit_name(symbolizer, 0x2008), "(none)");
	assert_int_equal(symbolizer_refresh(symbolizer, getpid()), 0);
	assert_string_equal(jit_name(symbolizer, 0x2008), "second");
	assert_ptr_equal(jit_name(symbolizer, 0x1008), name);
	/* Through the open file. */
	assert_int_equal(unlink(map_path), 0);
	assert_int_equal(symbolizer_refresh(symbolizer, getpid()), 0);
	assert_string_equal(jit_name(symbolizer, 0x200f), "second");
}

static void test_foreign_file(void **state)
{
	struct symbolizer *symbolizer CLEANUP(symbolizer) = NULL;

	if (geteuid())
		skip();
	write_map("w", "1000 10 planted\n");
	assert_int_equal(chown(map_path, 65534, 65534), 0);
	assert_int_equal(symbolizer_new(&(struct symbolizer_options){}, &symbolizer), 0);
	assert_int_equal(symbolizer_refresh(symbolizer, getpid()), 0);
	assert_string_equal(jit_name(symbolizer, 0x1008), "(none)");
	assert_int_equal(unlink(map_path), 0);
	/* A link out of /tmp leads to no such file either. */
	assert_int_equal(symlink("/etc/passwd", map_path), 0);
	assert_int_equal(symbolizer_refresh(symbolizer, getpid()), 0);
	assert_string_equal(jit_name(symbolizer, 0x1008), "(none)");
	assert_int_equal(unlink(map_path), 0);
}

static void test_exited(void **state)
{
	struct raw_code *code CLEANUP(raw_code) = NULL;
	struct raw_name name;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(raw_code_new(pid, &code), 0);
	assert_int_equal(raw_code_refresh(code), 0);
	assert_int_equal(raw_code_root(code), -1);
	assert_int_equal(raw_code_lookup(code, 0x1000, &name), 0);
	assert_null(name.name);
	assert_int_equal(raw_code_malformed(code), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vdso),
		cmocka_unit_test(test_jit),
		cmocka_unit_test(test_foreign_file),
		cmocka_unit_test(test_exited),
	};

	return cmocka_run_group_tests_name("raw_code", tests, setup, teardown);
}
