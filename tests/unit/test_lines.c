/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* lines: functions, inlined calls, files and lines, from DWARF in all the shapes that it comes in.
 */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/symtab.h"
#include "symbolize/lines.h"

/* `marker` is the instruction asked for. Lines are counted from 1 at the first string. */
#define MARKER "	__asm__ volatile(\".globl marker; .type marker,@function; marker: nop\");\n"

static const char c_source[] = "static inline __attribute__((always_inline)) int leaf(int n)\n"
			       "{\n" MARKER /* 3 */
			       "	return n + 1;\n"
			       "}\n"
			       "\n"
			       "static inline __attribute__((always_inline)) int middle(int n)\n"
			       "{\n"
			       "	for (int i = 0; i < n; i++) {\n"
			       "		int doubled = 2 * i;\n"
			       "		n += leaf(doubled);\n" /* 11 */
			       "	}\n"
			       "	return n;\n"
			       "}\n"
			       "\n"
			       "__attribute__((noinline)) int outer(int n)\n"
			       "{\n"
			       "	return middle(n) * 2;\n" /* 18 */
			       "}\n"
			       "\n"
			       "int main(int argc, char **argv)\n"
			       "{\n"
			       "	return outer(argc);\n"
			       "}\n";

static const char cxx_source[] = "namespace app {\n"
				 "template <typename T> struct box {\n"
				 "	__attribute__((always_inline)) int get(T n)\n"
				 "	{\n" MARKER /* 5 */
				 "		return n + 1;\n"
				 "	}\n"
				 "};\n"
				 "struct user {\n"
				 "	int use(int n);\n"
				 "};\n"
				 "__attribute__((noinline)) int user::use(int n)\n"
				 "{\n"
				 "	box<int> b;\n"
				 "	return b.get(n);\n" /* 15 */
				 "}\n"
				 "}\n"
				 "int main(int argc, char **argv)\n"
				 "{\n"
				 "	app::user u;\n"
				 "	return u.use(argc);\n"
				 "}\n";

/* A function inside a function, which is not in the first index. */
static const char nested_source[] = "int main(int argc, char **argv)\n"
				    "{\n"
				    "	__attribute__((noinline)) int inner(int n)\n"
				    "	{\n" MARKER /* 5 */
				    "		return n + argc;\n"
				    "	}\n"
				    "	return inner(1) + inner(2);\n"
				    "}\n";

struct expected {
	const char *name;
	long line;
	long start_line;
};

static const struct expected c_chain[] = {{"leaf", 3, 1}, {"middle", 11, 7}, {"outer", 18, 16}};
static const struct expected cxx_chain[] = {{"_ZN3app3boxIiE3getEi", 5, 3},
					    {"_ZN3app4user3useEi", 15, 12}};
static const struct expected nested_chain[] = {{"inner.0", 5, 3}};

/* Runs a shell command in the fixture's folder. */
static int try_shell(const char *format, ...)
{
	char text[1024], command[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(command, sizeof(command), "cd %s && { %s; } >log 2>&1", fixture_folder, text);
	return system(command);
}

static void write_source(const char *name, const char *source)
{
	FILE *file = fopen(fixture_path(name), "w");

	assert_non_null(file);
	fputs(source, file);
	assert_int_equal(fclose(file), 0);
}

static uint64_t marker_of(struct image *image)
{
	struct symtab *symtab CLEANUP(symtab) = NULL;
	const struct symbol *symbol;

	assert_int_equal(symtab_load(image, &symtab), 0);
	symbol = symtab_find(symtab, "marker");
	assert_non_null(symbol);
	return symbol->start;
}

/* Looks the marker of `name` up in the DWARF of `debug`, which may be the same file. */
static void check_in(const char *name, const char *debug, const char *source,
		     const struct expected *chain, size_t count)
{
	struct image *image CLEANUP(image) = fixture_open(fixture_path(name));
	struct image *debug_image CLEANUP(image) = fixture_open(fixture_path(debug));
	struct lines *lines CLEANUP(lines) = NULL;
	const struct line_frame *frames;
	char path[200];
	size_t found;

	snprintf(path, sizeof(path), "%s/%s", fixture_folder, source);
	assert_int_equal(lines_open(debug_image, &lines), 0);
	assert_int_equal(lines_lookup(lines, marker_of(image), &frames, &found), 0);
	assert_int_equal(found, count);
	for (size_t i = 0; i < count; i++) {
		const struct expected *expected = &chain[i];

		assert_non_null(frames[i].name);
		/* GCC numbers nested functions in the symbol table alone. */
		assert_memory_equal(frames[i].name, expected->name, strcspn(expected->name, "."));
		assert_int_equal(frames[i].line, expected->line);
		assert_int_equal(frames[i].start_line, expected->start_line);
		assert_string_equal(frames[i].filename, path);
	}
	/* No code is there. */
	assert_int_equal(lines_lookup(lines, 1, &frames, &found), 0);
	assert_int_equal(found, 0);
}

static void check_c(const char *name, const char *debug)
{
	check_in(name, debug, "plain.c", c_chain, ARRAY_SIZE(c_chain));
}

static const char *const compilers[] = {"gcc", "clang"};
static const char *const versions[] = {"4", "5"};

static void test_plain(void **state)
{
	write_source("plain.c", c_source);
	for (int i = 0; i < 4; i++) {
		for (int optimize = 0; optimize <= 3; optimize++) {
			assert_int_equal(try_shell("%s -w -g -gdwarf-%s -O%d $PWD/plain.c -o plain",
						   compilers[i / 2], versions[i % 2], optimize),
					 0);
			check_c("plain", "plain");
		}
	}
}

static void test_cxx(void **state)
{
	write_source("names.cc", cxx_source);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(try_shell("%s -w -g -gdwarf-%s -O2 $PWD/names.cc -o names",
					   i / 2 ? "clang++" : "g++", versions[i % 2]),
				 0);
		check_in("names", "names", "names.cc", cxx_chain, ARRAY_SIZE(cxx_chain));
	}
}

static void test_nested_function(void **state)
{
	write_source("nested.c", nested_source);
	assert_int_equal(try_shell("gcc -w -g -O0 $PWD/nested.c -o nested"), 0);
	check_in("nested", "nested", "nested.c", nested_chain, ARRAY_SIZE(nested_chain));
}

/* clang writes no .debug_aranges; a program may have parts by both, and sections of their own. */
static void test_mixed(void **state)
{
	write_source("plain.c", c_source);
	write_source("other.c", "int other(int n) { return n + 3; }\n");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(try_shell("%s -w -g -O2 -ffunction-sections -c $PWD/plain.c && "
					   "%s -w -g -O2 -c $PWD/other.c && "
					   "gcc -Wl,--gc-sections plain.o other.o -o mixed",
					   compilers[i], compilers[!i]),
				 0);
		check_c("mixed", "mixed");
	}
}

static void test_compressed_and_separate(void **state)
{
	write_source("plain.c", c_source);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(try_shell("%s -w -g -gdwarf-%s -gz -O2 $PWD/plain.c -o plain && "
					   "objcopy --only-keep-debug plain plain.debug",
					   compilers[i / 2], versions[i % 2]),
				 0);
		check_c("plain", "plain");
		check_c("plain", "plain.debug");
	}
	assert_int_equal(try_shell("gcc -w -g -gz=zlib-gnu -O2 $PWD/plain.c -o plain"), 0);
	check_c("plain", "plain");
}

static void build_split(int i)
{
	assert_int_equal(try_shell("rm -f *.dwo *.dwp; "
				   "%s -w -g -gdwarf-%s -gsplit-dwarf -O2 -c $PWD/plain.c && "
				   "%s -w -g -gdwarf-%s -gsplit-dwarf -O2 -c $PWD/other.c && "
				   "%s plain.o other.o -o split && test -e plain.dwo",
				   compilers[i / 2], versions[i % 2], compilers[i / 2],
				   versions[i % 2], compilers[i / 2]),
			 0);
}

static void test_split(void **state)
{
	write_source("plain.c", c_source);
	write_source("other.c", "int other(int n) { return n + 3; }\n");
	for (int i = 0; i < 4; i++) {
		build_split(i);
		check_c("split", "split");
		/* Moved away from where it was compiled, together with the program. */
		assert_int_equal(try_shell("rm -rf moved; mkdir moved; mv split *.dwo moved"), 0);
		check_c("moved/split", "moved/split");
		assert_int_equal(try_shell("rm -r moved"), 0);
	}
}

static void test_split_missing(void **state)
{
	struct lines *lines CLEANUP(lines) = NULL;
	struct image *image CLEANUP(image) = NULL;
	const struct line_frame *frames;
	size_t count;

	write_source("plain.c", c_source);
	write_source("other.c", "int other(int n) { return n + 3; }\n");
	build_split(1);
	/* Something that would block has its name, and the other unit's file. */
	assert_int_equal(try_shell("rm plain.dwo && mkfifo plain.dwo"), 0);
	image = fixture_open(fixture_path("split"));
	assert_int_equal(lines_open(image, &lines), 0);
	assert_int_equal(lines_lookup(lines, marker_of(image), &frames, &count), 0);
	assert_int_equal(count, 1);
	assert_null(frames[0].name);
	assert_int_equal(frames[0].line, 3);
}

/* Another build's file under the right name is not believed. */
static void test_split_stale(void **state)
{
	struct lines *lines CLEANUP(lines) = NULL;
	struct image *image CLEANUP(image) = NULL;
	const struct line_frame *frames;
	size_t count;

	write_source("plain.c", c_source);
	write_source("other.c", "int other(int n) { return n + 3; }\n");
	build_split(1);
	assert_int_equal(try_shell("cp other.dwo plain.dwo"), 0);
	image = fixture_open(fixture_path("split"));
	assert_int_equal(lines_open(image, &lines), 0);
	assert_int_equal(lines_lookup(lines, marker_of(image), &frames, &count), 0);
	assert_int_equal(count, 1);
	assert_null(frames[0].name);
}

static void test_package(void **state)
{
	int built = 0;

	write_source("plain.c", c_source);
	write_source("other.c", "int other(int n) { return n + 3; }\n");
	for (int i = 0; i < 8; i++) {
		const char *tool = i / 4 ? "llvm-dwp" : "dwp";

		build_split(i % 4);
		/* binutils' dwp 2.40 cannot do DWARF 5. */
		if (try_shell("%s -e split -o split.dwp", tool)) {
			assert_true(i == 1 || i == 3);
			continue;
		}
		assert_int_equal(try_shell("rm *.dwo"), 0);
		check_c("split", "split");
		built++;
	}
	assert_true(built >= 4);
}

static void test_supplement(void **state)
{
	write_source("plain.c", c_source);
	write_source("other.c", "int other(int n) { return n + 3; }\n");
	if (try_shell("command -v dwz"))
		skip();
	for (int i = 0; i < 2; i++) {
		/* Two programs with much in common. */
		assert_int_equal(try_shell("rm -rf one two shared; mkdir one two; "
					   "for d in one two; do gcc -w -g -gdwarf-%s -O2 "
					   "-include stdio.h -include pthread.h $PWD/plain.c "
					   "-o $d/prog; done; "
					   "cp one/prog one/whole && "
					   "dwz -m shared -r one/prog two/prog && "
					   "readelf -SW one/prog | grep debugaltlink",
					   versions[i]),
				 0);
		check_c("one/prog", "one/prog");
		/* Without the supplement what was moved there has no name; nothing else is lost. */
		assert_int_equal(try_shell("mv shared away"), 0);
		{
			struct image *image CLEANUP(image) = fixture_open(fixture_path("one/prog"));
			struct lines *lines CLEANUP(lines) = NULL;
			const struct line_frame *frames;
			size_t count;

			assert_int_equal(lines_open(image, &lines), 0);
			assert_int_equal(lines_lookup(lines, marker_of(image), &frames, &count), 0);
			assert_int_equal(count, 3);
			assert_int_equal(frames[0].line, 3);
		}
	}
}

static void test_none(void **state)
{
	struct lines *lines = NULL;
	struct image *image CLEANUP(image) = NULL;

	fixture_compile("bare", ".c", c_source, "-O2 -s");
	image = fixture_open(fixture_path("bare"));
	assert_int_equal(lines_open(image, &lines), -ENOENT);
	assert_null(lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_cxx),
		cmocka_unit_test(test_nested_function),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_compressed_and_separate),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_split_missing),
		cmocka_unit_test(test_split_stale),
		cmocka_unit_test(test_package),
		cmocka_unit_test(test_supplement),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
