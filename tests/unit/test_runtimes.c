/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* runtimes: small images that bear their marks, real ones where they are installed, and damage. */
#include "elf_fixture.h"

#include <errno.h>

#include "failing_malloc.h"
#include "probe/runtimes.h"

static const char *environment; /* the value of every variable */

static int variable(void *arg, const char *name, char *value, size_t size)
{
	if (!environment)
		return -ENOENT;
	snprintf(value, size, "%s", environment);
	return 0;
}

static struct runtimes *new_runtimes(void)
{
	struct runtimes *runtimes = NULL;

	assert_int_equal(runtimes_new(variable, NULL, &runtimes), 0);
	return runtimes;
}

static void note(struct runtimes *runtimes, const char *path)
{
	struct image *image CLEANUP(image) = fixture_open(path);

	assert_int_equal(runtimes_note_image(runtimes, image), 0);
}

/* The file shows this runtime by this evidence, and no other; none if start is NULL. */
static void check(const char *path, const char *start)
{
	struct runtimes *runtimes CLEANUP(runtimes) = new_runtimes();
	char want[256];

	note(runtimes, path);
	assert_int_equal(runtimes_count(runtimes), start ? 1 : 0);
	if (!start) {
		assert_null(runtimes_explain_none(runtimes));
		return;
	}
	snprintf(want, sizeof(want), "%s in %s): malloc does not serve ", start, path);
	assert_memory_equal(runtimes_describe(runtimes)[0], want, strlen(want));
	assert_non_null(strstr(runtimes_describe(runtimes)[0], "To see the rest: "));
	assert_memory_equal(runtimes_explain_none(runtimes), want, strlen(want));
}

static void check_source(const char *suffix, const char *source, const char *options,
			 const char *start)
{
	fixture_compile("image", suffix, source, options);
	check(fixture_path("image"), start);
}

static void test_go(void **state)
{
	static const char buildinfo[] = ".section .go.buildinfo,\"aw\"\n.quad 1\n";
	static const char pclntab[] = ".section .gopclntab,\"a\"\n.quad 1\n";

	check_source(".s", buildinfo, "-shared -nostdlib", "Go (section .go.buildinfo");
	check_source(".s", buildinfo, "-shared -nostdlib -s", "Go (section .go.buildinfo");
	check_source(".s", pclntab, "-shared -nostdlib", "Go (section .gopclntab");
	check_source(".s", ".section .other,\"a\"\n.ascii \".gopclntab\"\n", "-shared -nostdlib",
		     NULL);
}

/* With no section headers left, as sstrip leaves a file. */
static void test_go_note(void **state)
{
	static const char path[] = "headless";
	uint8_t *bytes;
	size_t size;
	FILE *file;

	fixture_compile("image", ".s",
			".section .note.go.buildid,\"a\",@note\n"
			".long 4, 8, 4\n.ascii \"Go\\0\\0\"\n.quad 1\n",
			"-shared -nostdlib");
	bytes = fixture_read(fixture_path("image"), &size);
	memset(bytes + offsetof(Elf64_Ehdr, e_shoff), 0, 8);
	memset(bytes + offsetof(Elf64_Ehdr, e_shnum), 0, 4);
	file = fopen(fixture_path(path), "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
	fclose(file);
	free(bytes);
	check(fixture_path(path), "Go (note of Go");
}

static void test_functions(void **state)
{
	static const char exported[] = "int JNI_CreateJavaVM(void) { return 1; }";

	check_source(".c", exported, "-shared -fPIC", "Java (function JNI_CreateJavaVM");
	check_source(".c", exported, "-shared -fPIC -s", "Java (function JNI_CreateJavaVM");
	check_source(".c", "int JNI_CreateJavaVM(void); int f(void) { return JNI_CreateJavaVM(); }",
		     "-shared -fPIC", NULL);
	check_source(".c",
		     "static int JNI_CreateJavaVM(void) { return 1; }\n"
		     "int f(void) { return JNI_CreateJavaVM(); }",
		     "-shared -fPIC", NULL);
	check_source(".c", "int JNI_CreateJavaVM[1] = {1};", "-shared -fPIC", NULL);
	check_source(".c", "int JNI_CreateJavaVMs(void) { return 1; }", "-shared -fPIC", NULL);
	/* A program exports nothing unless it is told to, but has symbols. */
	check_source(".c", "int Py_Initialize(void) { return 1; } int main(void) { return 0; }", "",
		     "Python (function Py_Initialize");
	check_source(".c", "int Py_Initialize(void) { return 1; } int main(void) { return 0; }",
		     "-s", NULL);
}

static void test_environment(void **state)
{
	static const struct {
		const char *value;
		bool all;
	} cases[] = {
		{"malloc", true}, {"malloc_debug", true}, {"debug", false}, {"default", false},
		{"", false},	  {NULL, false},
	};

	fixture_compile("image", ".c", "int Py_Initialize(void) { return 1; }", "-shared -fPIC");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct runtimes *runtimes CLEANUP(runtimes) = new_runtimes();
		const char *text;

		environment = cases[i].value;
		note(runtimes, fixture_path("image"));
		assert_int_equal(runtimes_count(runtimes), 1);
		text = runtimes_describe(runtimes)[0];
		assert_int_equal(strstr(text, "malloc serves all of it") != NULL, cases[i].all);
		assert_int_equal(strstr(text, "does not count") != NULL, !cases[i].all);
	}
	environment = NULL;
}

static void test_each_once(void **state)
{
	struct runtimes *runtimes CLEANUP(runtimes) = new_runtimes();
	const char *const *texts = runtimes_describe(runtimes);

	fixture_compile("first", ".c", "int Py_Initialize(void) { return 1; }", "-shared -fPIC");
	fixture_compile("both", ".c",
			"int Py_Initialize(void) { return 1; } int ruby_init(void) { return 1; }",
			"-shared -fPIC");
	note(runtimes, fixture_path("first"));
	note(runtimes, fixture_path("first"));
	assert_int_equal(runtimes_count(runtimes), 1);
	note(runtimes, fixture_path("both"));
	assert_int_equal(runtimes_count(runtimes), 2);
	assert_ptr_equal(runtimes_describe(runtimes), texts);
	assert_memory_equal(texts[0], "Python (", 8);
	assert_memory_equal(texts[1], "Ruby (", 6);
	assert_memory_equal(runtimes_explain_none(runtimes), "Python (", 8);
}

/* As Debian installs them; what is not there is not checked. */
static void test_real(void **state)
{
	static const struct {
		const char *path, *start;
	} files[] = {
		{"/usr/bin/python3", "Python (function Py_Initialize"},
		{"/usr/bin/node", "V8 (function _ZN2v82V810GetVersionEv"},
		{"/usr/lib/x86_64-linux-gnu/libnode.so.108",
		 "V8 (function _ZN2v82V810GetVersionEv"},
		{"/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
		 "Java (function JNI_CreateJavaVM"},
		{"/usr/lib/go-1.19/bin/go", "Go (section .go.buildinfo"},
		{"/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1", "Ruby (function ruby_init"},
		{"/usr/bin/php8.2", "PHP (function _emalloc"},
		{"/usr/bin/luajit", "LuaJIT (function luaJIT_setmode"},
		{"/usr/lib/x86_64-linux-gnu/libmozjs-102.so.102",
		 "SpiderMonkey (function _Z13JS_NewContextjP9JSRuntime"},
		{"/usr/lib/x86_64-linux-gnu/libgc.so.1", "Boehm's collector (function GC_malloc"},
		{"/usr/lib/libmonosgen-2.0.so.1", "Mono (function mono_jit_init"},
		{"/bin/bash", NULL},
		{"/usr/bin/perl", NULL},
		{"/usr/bin/java", NULL},
		{"/usr/bin/redis-server", NULL},
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", NULL},
		{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", NULL},
		{"/usr/lib/x86_64-linux-gnu/liblua5.4.so.0", NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!access(files[i].path, R_OK))
			check(files[i].path, files[i].start);
}

static void check_damaged(int fd)
{
	struct runtimes *runtimes CLEANUP(runtimes) = new_runtimes();
	struct image *image CLEANUP(image) = NULL;

	if (!image_open(fd, "damaged", &image))
		assert_int_equal(runtimes_note_image(runtimes, image), 0);
}

static void test_damage(void **state)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t size;

	fixture_compile("image", ".s",
			".section .note.go.buildid,\"a\",@note\n"
			".long 4, 8, 4\n.ascii \"Go\\0\\0\"\n.quad 1\n"
			".section .go.buildinfo,\"aw\"\n.quad 1\n"
			".text\n.globl ruby_init\n.type ruby_init,@function\nruby_init: ret\n",
			"-shared -nostdlib");
	bytes = fixture_read(fixture_path("image"), &size);
	fixture_damage(bytes, size, check_damaged);
}

#if FAILING_MALLOC_WORKS
/* Each allocation fails once: there is a whole note afterwards, or none. */
static void test_no_memory(void **state)
{
	long attempts = 0;
	bool failed = false;

	fixture_compile("image", ".c", "int Py_Initialize(void) { return 1; }", "-shared -fPIC");
	do {
		struct image *image CLEANUP(image) = fixture_open(fixture_path("image"));
		struct runtimes *runtimes CLEANUP(runtimes) = new_runtimes();
		int err;

		failing_malloc_countdown = ++attempts;
		err = runtimes_note_image(runtimes, image);
		failed = !failing_malloc_countdown;
		failing_malloc_countdown = 0;
		assert_true(!err || err == -ENOMEM);
		if (runtimes_count(runtimes)) {
			assert_memory_equal(runtimes_describe(runtimes)[0], "Python (", 8);
			assert_non_null(runtimes_explain_none(runtimes));
		}
		assert_int_equal(runtimes_note_image(runtimes, image), 0);
		assert_int_equal(runtimes_count(runtimes), 1);
	} while (failed);
	assert_true(attempts > 5);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_go),
		cmocka_unit_test(test_go_note),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_each_once),
		cmocka_unit_test(test_real),
		cmocka_unit_test(test_damage),
#if FAILING_MALLOC_WORKS
		cmocka_unit_test(test_no_memory),
#endif
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
