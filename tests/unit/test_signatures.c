/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* signatures: which functions of a library are found in a stripped program, and which are not. */
#include "elf_fixture.h"

#include <elf.h>
#include <errno.h>

#include "elf/relocation.h"
#include "probe/signatures.h"

/* A library of own functions: no C library, so that links are fast. */
#define BODY(name, n)                                                                              \
	"long " name "(long a, long b) { for (long i = 0; i < a; i++) { b = b * " #n "1 + i; "     \
	"b ^= b >> " #n "; state[i & 7] += b; } return b; }\n"
#define STATE "static long state[8];\n"

#define PROGRAM_START                                                                              \
	"void _start(void) { long r = run(); "                                                     \
	"__asm__ volatile(\"syscall\" :: \"a\"(60), \"D\"(r)); __builtin_unreachable(); }\n"

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

static void compile(const char *object, const char *options, const char *source)
{
	char all[256];

	snprintf(all, sizeof(all), "-c -O2 -fno-stack-protector -fcf-protection=none %s", options);
	fixture_compile(object, ".c", source, all);
}

/* Links main.o with a library into `app`, and strips that into `stripped`. */
static void link_app(const char *library, const char *options)
{
	run("gcc -nostdlib -static %s -o app main.o %s && strip -o stripped app", options, library);
}

/* The address of a symbol of the unstripped program; 0 if it has none. */
static uint64_t truth(const char *name)
{
	char command[256];
	unsigned long long value = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "nm %s | awk '$3 == \"%s\" { print $1 }'",
		 fixture_path("app"), name);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	if (fscanf(pipe, "%llx", &value) != 1)
		value = 0;
	pclose(pipe);
	return value;
}

static bool is_wanted(const char *name, void *arg)
{
	return !strncmp(name, "want", 4);
}

struct found {
	struct signatures *signatures;
	struct image *image;
	struct signature_hits hits;
};

static void find(struct found *found, const char *library)
{
	*found = (struct found){};
	assert_int_equal(
		signatures_load(fixture_path(library), is_wanted, NULL, &found->signatures), 0);
	found->image = fixture_open(fixture_path("stripped"));
	assert_int_equal(signatures_find(found->signatures, found->image, &found->hits), 0);
	/* Whatever was found is right. */
	for (size_t i = 0; i < found->hits.count; i++)
		assert_int_equal(found->hits.entries[i].start, truth(found->hits.entries[i].name));
}

static void end(struct found *found)
{
	signature_hits_fini(&found->hits);
	image_free(found->image);
	signatures_free(found->signatures);
}

/* Finds, and compares the counts of names found and functions that are ambiguous. */
static void expect(const char *library, size_t count, size_t ambiguous)
{
	struct found found;

	find(&found, library);
	assert_int_equal(found.hits.count, count);
	assert_int_equal(found.hits.ambiguous, ambiguous);
	end(&found);
}

static void test_functions(void **state)
{
	struct found found;

	compile("lib.o", "", STATE BODY("want_a", 3) BODY("other", 5) BODY("want_b", 7));
	compile("main.o", "",
		"long want_a(long, long), want_b(long, long);\n"
		"long run(void) { return want_a(1, 2) + want_b(3, 4); }\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a lib.o");
	link_app("lib.a", "");
	find(&found, "lib.a");
	assert_int_equal(found.hits.count, 2);
	assert_string_equal(found.hits.entries[0].name, "want_a");
	assert_string_equal(found.hits.entries[1].name, "want_b");
	assert_true(found.hits.entries[0].size > 30);
	end(&found);
	/* The object alone will do, and other linkers. */
	expect("lib.o", 2, 0);
	link_app("lib.a", "-fuse-ld=gold");
	expect("lib.a", 2, 0);
	link_app("lib.a", "-Wl,--no-relax");
	expect("lib.a", 2, 0);
	/* Another library's functions are not there. */
	compile("else.o", "", STATE BODY("want_a", 9) BODY("want_b", 8));
	expect("else.o", 0, 0);
}

static void test_aliases(void **state)
{
	struct found found;

	compile("lib.o", "",
		STATE BODY("want_a",
			   3) "long want_b(long, long) __attribute__((weak, alias(\"want_a\")));\n"
			      "long other(long, long) __attribute__((alias(\"want_a\")));\n");
	compile("main.o", "",
		"long want_b(long, long);\n"
		"long run(void) { return want_b(1, 2); }\n" PROGRAM_START);
	link_app("lib.o", "");
	find(&found, "lib.o");
	assert_int_equal(found.hits.count, 2);
	assert_int_equal(found.hits.entries[0].start, found.hits.entries[1].start);
	end(&found);
}

/* Only what is linked in is found: sections that the linker has dropped are not there. */
static void test_dropped(void **state)
{
	compile("lib.o", "-ffunction-sections", STATE BODY("want_a", 3) BODY("want_b", 5));
	compile("main.o", "-ffunction-sections",
		"long want_a(long, long);\n"
		"long run(void) { return want_a(1, 2); }\n" PROGRAM_START);
	link_app("lib.o", "-Wl,--gc-sections");
	expect("lib.o", 1, 0);
}

/* Where the section has changed, a function is still found by itself. */
static void test_other_section(void **state)
{
	compile("lib.o", "", STATE BODY("want_a", 3) BODY("want_b", 5));
	compile("main.o", "",
		"long want_a(long, long);\n"
		"long run(void) { return want_a(1, 2); }\n" PROGRAM_START);
	link_app("lib.o", "");
	compile("lib.o", "", STATE BODY("want_b", 7) BODY("more", 9) BODY("want_a", 3));
	expect("lib.o", 1, 0);
}

/* The same code twice: no one can tell which is which. */
static void test_ambiguous(void **state)
{
	compile("a.o", "-Dstate=state_a", "extern long state[8];\n" BODY("want_a", 3));
	compile("b.o", "-Dstate=state_b", "extern long state[8];\n" BODY("want_b", 3));
	compile("main.o", "",
		"long want_a(long, long), want_b(long, long); long state_a[8], state_b[8];\n"
		"long run(void) { return want_a(1, 2) + want_b(3, 4); }\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a a.o b.o");
	link_app("lib.a", "");
	expect("lib.a", 0, 2);
	/* What the library itself calls can be told. */
	compile("c.o", "",
		"long want_a(long, long);\n"
		"long want_c(long a) { long s = a; for (long i = 3; i < a; i++) "
		"s += want_a(i * a, s ^ 0x1234); return s * 77 + 1; }\n");
	compile("main.o", "",
		"long want_c(long), want_b(long, long); long state_a[8], state_b[8];\n"
		"long run(void) { return want_c(1) + want_b(3, 4); }\n" PROGRAM_START);
	run("ar rcs lib.a c.o");
	link_app("lib.a", "");
	expect("lib.a", 2, 1);
}

/* The same code in one object: the linker keeps the order. */
static void test_order(void **state)
{
	compile("lib.o", "-ffunction-sections",
		"long work(long, long);\n"
		"long want_a(long a, long b) { return work(a, b); }\n"
		"long want_b(long a, long b) { return work(a, b); }\n");
	compile("work.o", "", STATE BODY("work", 3));
	compile("main.o", "",
		"long want_a(long, long), want_b(long, long);\n"
		"long run(void) { return want_a(1, 2) + want_b(3, 4); }\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a lib.o work.o");
	link_app("lib.a", "");
	expect("lib.a", 2, 0);
}

/* The same bytes, but they call different functions; and mere jumps. */
static void test_references(void **state)
{
	compile("lib.o", "-ffunction-sections -fno-optimize-sibling-calls",
		"long one(long, long), two(long, long);\n"
		"long want_a(long a, long b) { return one(a + 17, b * 333) ^ (a + 0x7777777) * b; "
		"}\n");
	compile("lib2.o", "-ffunction-sections -fno-optimize-sibling-calls",
		"long one(long, long), two(long, long);\n"
		"long want_b(long a, long b) { return two(a + 17, b * 333) ^ (a + 0x7777777) * b; "
		"}\n");
	compile("jump.o", "-ffunction-sections",
		"long one(long, long), two(long, long);\n"
		"long want_c(long a, long b) { return one(a, b); }\n"
		"long want_d(long a, long b) { return two(a, b); }\n");
	compile("work.o", "-ffunction-sections", STATE BODY("one", 3) BODY("two", 5));
	compile("main.o", "",
		"long want_a(long, long), want_b(long, long), want_c(long, long), want_d(long, "
		"long);\n"
		"long run(void) { return want_a(1, 2) + want_b(3, 4) + want_c(5, 6) + want_d(7, "
		"8); "
		"}\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a lib.o lib2.o jump.o work.o");
	link_app("lib.a", "");
	expect("lib.a", 4, 0);
	/* Without the functions that they call there is nothing to tell them by. */
	run("ar d lib.a work.o && rm -f all.a && ar rcs all.a lib.o lib2.o jump.o work.o");
	link_app("all.a", "");
	expect("lib.a", 0, 2);
}

/* A jump in the middle of a program's own function is no wrapper. */
static void test_jump_inside(void **state)
{
	compile("jump.o", "-ffunction-sections",
		"long one(long, long); long want_c(long a, long b) { return one(a, b); }\n");
	compile("work.o", "-ffunction-sections", STATE BODY("one", 3));
	compile("main.o", "",
		"__asm__(\".globl user\\nuser: test %rdi, %rdi\\n jne 1f\\n xor %eax, %eax\\n "
		"ret\\n"
		".p2align 4\\n1: jmp one\\n\");\n"
		"long user(long, long);\n"
		"long run(void) { return user(1, 2); }\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a jump.o work.o");
	link_app("lib.a", "");
	expect("lib.a", 0, 1);
}

/* Linkers replace these instructions by shorter ones. */
static void test_relaxed(void **state)
{
	static const char *const linkers[] = {"", "-Wl,--no-relax", "-fuse-ld=gold",
					      "-fuse-ld=lld"};

	compile("lib.o", "-fPIC -fno-plt",
		"extern __thread long far; static __thread long near, near2; extern long data;\n"
		"long call(long, long); extern long (*pointer)(long, long);\n"
		"long want_got(long a, long b) { data += a * 3; return call(a, b) + data * 7; }\n"
		"long want_jump(long a, long b) { data ^= a * 99 + b; pointer = call; "
		"return call(b, a); }\n"
		"long want_ie(long a, long b) { far += a * 123; far ^= b * 55; return far * 77; }\n"
		"long want_ld(long a, long b) { near += a * 321; near2 ^= near * b; "
		"return near + near2 * 7; }\n");
	compile("ie.o", "-fPIC -ftls-model=initial-exec",
		"extern __thread long far;\n"
		"long want_ie2(long a, long b) { far += a * 123; far ^= b * 55; return far * 79; "
		"}\n");
	compile("main.o", "",
		"__thread long far = 3; long data, (*pointer)(long, long);\n"
		"long call(long a, long b) { return a - b; }\n"
		"long __tls_get_addr(void *p) { return 0; }\n"
		"long want_got(long, long), want_jump(long, long), want_ie(long, long), "
		"want_ld(long, long), want_ie2(long, long);\n"
		"long run(void) { return want_got(1, 2) + want_jump(1, 2) + want_ie(1, 2) + "
		"want_ld(3, 4) + want_ie2(5, 6); }\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a lib.o ie.o");
	for (size_t i = 0; i < ARRAY_SIZE(linkers); i++) {
		link_app("lib.a", linkers[i]);
		expect("lib.a", 5, 0);
	}
}

static void expect_span(uint32_t type, const char *code, uint64_t offset, uint64_t start,
			uint64_t end_at)
{
	struct relocation_span span = relocation_writes(type, (const uint8_t *)code, 40, offset);

	assert_int_equal(span.start, start);
	assert_int_equal(span.end, end_at);
}

static void test_masks(void **state)
{
	static const char zeros[40];
	static const char large_gd[40] = "\x48\x8d\x3d\0\0\0\0\x48\xb8";
	static const char ld_by_got[40] = "\x48\x8d\x3d\0\0\0\0\xff\x15";

	expect_span(R_X86_64_PC32, zeros, 8, 8, 12);
	expect_span(R_X86_64_64, zeros, 8, 8, 16);
	expect_span(R_X86_64_GOTPCRELX, zeros, 8, 6, 12);
	expect_span(R_X86_64_REX_GOTPCRELX, zeros, 8, 5, 12);
	expect_span(R_X86_64_GOTTPOFF, zeros, 8, 5, 12);
	expect_span(R_X86_64_TLSGD, zeros, 8, 4, 20);
	expect_span(R_X86_64_TLSGD, large_gd, 3, 0, 22);
	expect_span(R_X86_64_TLSLD, zeros, 3, 0, 12);
	expect_span(R_X86_64_TLSLD, ld_by_got, 3, 0, 13);
	expect_span(R_X86_64_TLSLD, large_gd, 3, 0, 22);
	expect_span(R_X86_64_NONE, zeros, 8, 8, 8);
	/* Never past the ends. */
	expect_span(R_X86_64_GOTTPOFF, zeros, 1, 0, 5);
	expect_span(R_X86_64_TLSGD, zeros, 38, 34, 40);
	expect_span(R_X86_64_64, zeros, 39, 39, 40);
	expect_span(R_X86_64_64, zeros, 40, 40, 40);
	expect_span(R_X86_64_64, zeros, UINT64_MAX, UINT64_MAX, UINT64_MAX);
}

static int load_error(const char *name)
{
	struct signatures *signatures = NULL;
	int err = signatures_load(fixture_path(name), is_wanted, NULL, &signatures);

	signatures_free(signatures);
	return err;
}

static void test_refused(void **state)
{
	compile("lib.o", "", STATE BODY("want_a", 3));
	compile("none.o", "", STATE BODY("other", 3));
	run("rm -f thin.a none.a empty.a && ar rcsT thin.a lib.o && ar rcs none.a none.o && "
	    "ar rcs empty.a && echo text >text && : >nothing && mkfifo pipe && "
	    "gcc -m32 -c -O2 -o small.o lib.o.c || cp text small.o");
	assert_int_equal(load_error("thin.a"), -ENOTSUP);
	assert_int_equal(load_error("none.a"), -ENODATA);
	assert_int_equal(load_error("empty.a"), -ENOEXEC);
	assert_int_equal(load_error("text"), -ENOEXEC);
	assert_int_equal(load_error("nothing"), -ENOEXEC);
	assert_int_equal(load_error("pipe"), -ENOEXEC);
	assert_int_equal(load_error("small.o"), -ENOEXEC);
	assert_int_equal(load_error("missing"), -ENOENT);
	/* A program is no library to link with. */
	compile("main.o", "", "long run(void) { return 0; }\n" PROGRAM_START);
	link_app("lib.o", "");
	assert_int_equal(load_error("app"), -ENOEXEC);
}

static struct image *damage_image;

static void check_damaged(int fd)
{
	struct signature_hits hits = {};
	struct signatures *signatures = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!signatures_load(path, is_wanted, NULL, &signatures) &&
	    !signatures_find(signatures, damage_image, &hits))
		signature_hits_fini(&hits);
	signatures_free(signatures);
	close(fd);
}

static void test_damage(void **state)
{
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t size;

	compile("lib.o", "-ffunction-sections",
		STATE BODY("want_a", 3) "long want_b(long a, long b) { return want_a(a, b); }\n");
	compile("main.o", "",
		"long want_a(long, long), want_b(long, long);\n"
		"long run(void) { return want_a(1, 2) + want_b(3, 4); }\n" PROGRAM_START);
	run("rm -f lib.a && ar rcs lib.a main.o lib.o");
	link_app("lib.o", "");
	damage_image = fixture_open(fixture_path("stripped"));
	bytes = fixture_read(fixture_path("lib.a"), &size);
	fixture_damage(bytes, size, check_damaged);
	image_free(damage_image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),  cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_dropped),	   cmocka_unit_test(test_other_section),
		cmocka_unit_test(test_ambiguous),  cmocka_unit_test(test_order),
		cmocka_unit_test(test_references), cmocka_unit_test(test_jump_inside),
		cmocka_unit_test(test_relaxed),	   cmocka_unit_test(test_masks),
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests_name("signatures", tests, fixture_setup, fixture_teardown);
}
