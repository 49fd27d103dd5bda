/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* locate: where functions are looked for, in which order, and what is said if there are none. */
#include "elf_fixture.h"

#include <errno.h>

#include "probe/locate.h"
#include "probe/resemble.h"

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void run(const char *format, ...)
{
	char command[1024], line[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	snprintf(line, sizeof(line), "cd %s && (%s) >log 2>&1", fixture_folder, command);
	assert_int_equal(system(line), 0);
}

/* A static program with a "malloc" and a "free" of its own, and the library they are from. */
static int setup(void **state)
{
	static const char library[] =
		"static long state[8];\n"
		"void *malloc(unsigned long n) { for (unsigned long i = 0; i < n; i++) "
		"state[i & 7] ^= n * 33 + i; return state; }\n"
		"void free(void *p) { for (int i = 0; i < 8; i++) state[i] -= (long)p * 77; }\n";
	static const char program[] = "void *malloc(unsigned long); void free(void *);\n"
				      "void _start(void) { free(malloc(3)); __builtin_trap(); }\n";
	int err = fixture_setup(state);

	unsetenv("DEBUGINFOD_URLS");
	fixture_compile("lib.o", ".c", library, "-c -O2 -fno-builtin -fno-stack-protector");
	fixture_compile("main.o", ".c", program, "-c -O2 -fno-builtin -fno-stack-protector");
	run("ar rcs lib.a lib.o && ar rcsT thin.a lib.o && "
	    "gcc -nostdlib -static -Wl,--build-id -o app main.o lib.a && strip -o stripped app");
	return err;
}

static bool is_wanted(const char *name, void *arg)
{
	return !strcmp(name, "malloc") || !strcmp(name, "free");
}

static uint64_t truth(const char *name)
{
	char command[256];
	unsigned long long value = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "nm %s | awk '$3 == \"%s\" { print $1 }'",
		 fixture_path("app"), name);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_int_equal(fscanf(pipe, "%llx", &value), 1);
	pclose(pipe);
	return value;
}

/* Locates in `program`; returns what locate_more() does. The caller frees the locator. */
static int locate(const char *program, const char *library, const char *dir,
		  struct locator **locator, size_t *count)
{
	struct image *image CLEANUP(image) = fixture_open(fixture_path(program));
	_cleanup_free_ struct located_function *functions = NULL;
	char library_path[128] = "", dir_path[128] = "";
	const char *files[] = {library_path}, *dirs[] = {dir_path};
	struct locate_options options = {
		.signature_files = files,
		.signature_file_count = library != NULL,
		.debug_dirs = dirs,
		.debug_dir_count = dir != NULL,
		.root_fd = -1,
		.download = true,
	};
	int err;

	if (library)
		strcpy(library_path, *library == '/' ? library : fixture_path(library));
	if (dir)
		strcpy(dir_path, fixture_path(dir));
	assert_int_equal(locator_new(&options, locator), 0);
	*count = 0;
	err = locate_more(*locator, image, is_wanted, NULL, &functions, count);
	for (size_t i = 0; i < *count && !err; i++) {
		assert_int_equal(functions[i].start, truth(functions[i].name));
		assert_true(functions[i].size > 20);
		assert_false(functions[i].ifunc);
	}
	return err;
}

static void expect(const char *program, const char *library, const char *dir, size_t wanted)
{
	struct locator *locator CLEANUP(locator) = NULL;
	char text[512];
	size_t count;

	assert_int_equal(locate(program, library, dir, &locator, &count), 0);
	assert_int_equal(count, wanted);
	assert_null(locator_error(locator));
	locator_describe(locator, text, sizeof(text));
	assert_int_equal(*text == '\0', wanted != 0);
}

static void test_sources(void **state)
{
	char id[64] = "";
	struct image *image CLEANUP(image) = fixture_open(fixture_path("app"));

	snprintf(id, sizeof(id), "%s", image_build_id(image));
	assert_int_equal(strlen(id), 40);
	expect("stripped", NULL, NULL, 0);
	expect("stripped", "lib.a", NULL, 2);
	expect("stripped", "lib.o", NULL, 2);
	run("mkdir -p dirs/.build-id/%.2s && objcopy --only-keep-debug app "
	    "dirs/.build-id/%.2s/%s.debug",
	    id, id, id + 2);
	expect("stripped", NULL, "dirs", 2);
	run("objcopy --only-keep-debug app symbols && strip -g symbols && xz -k -f symbols && "
	    "cp stripped mini && objcopy --add-section .gnu_debugdata=symbols.xz mini");
	expect("mini", NULL, NULL, 2);
}

/* A debug file is asked first: the signatures are not needed, but must be sound. */
static void test_bad_library(void **state)
{
	static const struct {
		const char *library;
		int err;
		const char *words;
	} cases[] = {
		{"thin.a", -ENOTSUP, "thin.a' is a thin archive"},
		{"main.o", -ENODATA, "main.o' defines no allocation functions"},
		{"app", -ENOEXEC, "app' holds no x86-64 object files"},
		{"missing.a", -ENOENT, "missing.a': No such file"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct locator *locator CLEANUP(locator) = NULL;
		size_t count;

		assert_int_equal(locate("stripped", cases[i].library, "dirs", &locator, &count),
				 cases[i].err);
		assert_non_null(locator_error(locator));
		assert_non_null(strstr(locator_error(locator), cases[i].words));
	}
}

static void describe(const char *program, const char *library, char *text, size_t size)
{
	struct locator *locator CLEANUP(locator) = NULL;
	size_t count;

	assert_int_equal(locate(program, library, NULL, &locator, &count), 0);
	assert_int_equal(count, 0);
	locator_describe(locator, text, size);
}

static void test_description(void **state)
{
	char text[1024], small[16];

	describe("stripped", NULL, text, sizeof(text));
	assert_non_null(strstr(text, "/stripped is statically linked and stripped; searched "
				     ".symtab, .dynsym, /usr/lib/debug by build-id, MiniDebugInfo, "
				     "debuginfod (DEBUGINFOD_URLS is not set), and no signatures: "
				     "give the library that it was linked with, e.g. "
				     "--signatures-from /"));
	describe("stripped", NULL, small, sizeof(small));
	assert_int_equal(strlen(small), sizeof(small) - 1);
	/* Another build of the library. */
	run("sed s/77/78/ lib.o.c | sed s/33/34/ >other.c && gcc -c -O2 -w -fno-builtin "
	    "-fno-stack-protector other.c");
	describe("stripped", "other.o", text, sizeof(text));
	assert_non_null(strstr(text, "and signatures from /"));
	assert_non_null(strstr(text, "give the very library that it was linked with"));
}

static void expect_allocator(const char *source, const char *options, const char *name)
{
	struct image *image CLEANUP(image) = NULL;
	const struct resemble_allocator *allocator;

	fixture_compile("marked", ".c", source, options);
	image = fixture_open(fixture_path("marked"));
	allocator = resemble_image(image);
	assert_int_equal(allocator != NULL, name != NULL);
	if (name)
		assert_string_equal(allocator->name, name);
}

static void test_resemblance(void **state)
{
	const char *plain = "int main(void) { return 0; }";

	expect_allocator(plain, "-s", NULL);
	expect_allocator("#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }",
			 "-static -s", "glibc's malloc");
	expect_allocator("char c[] = \"<jemalloc>: x\"; int main(void) { return *c; }", "-s",
			 "jemalloc");
	/* The mark lies across two reads, and a C library's is there as well. */
	expect_allocator(
		"__attribute__((aligned(4096))) const char c[3 << 20] = {[(1 << 20) - 5] = "
		"'S', 'c', 'u', 'd', 'o', ' ', 'E', 'R', 'R', 'O', 'R'};\n"
		"const char d[] = \"<malloc version=\"; "
		"int main(int i, char **v) { return c[i] + d[i]; }",
		"-s", "scudo");
	expect_allocator("int main(int i, char **v) { __asm__ volatile(\"cmp $0x1ffeb, %rdi\"); "
			 "return 0; }",
			 "-s", "musl's malloc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sources),
		cmocka_unit_test(test_bad_library),
		cmocka_unit_test(test_description),
		cmocka_unit_test(test_resemblance),
	};

	return cmocka_run_group_tests_name("locate", tests, setup, fixture_teardown);
}
