/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* points: functions that call those of other files, by name, through pointers, and in memory. */
#include "linkage_fixture.h"

#include <dlfcn.h>
#include <link.h>

/* What stands at the end of every chain. */
static const char base[] = "#include <stddef.h>\n"
			   "static char pool[1 << 16]; static size_t used;\n"
			   "void *malloc(size_t n) { used += n; return pool + used - n; }\n"
			   "void *calloc(size_t m, size_t n) { return malloc(m * n) + 1; }\n"
			   "void *realloc(void *p, size_t n) { return p ? p : pool + n; }\n"
			   "void free(void *p) { used -= p != 0; }\n";

/* A program's own operator new, as in the C++ standard's footnotes. */
static const char operators[] =
	"#include <stddef.h>\n"
	"void *malloc(size_t); void free(void *); void abort(void);\n"
	"extern void (*handler(void))(void);\n"
	"void *_Znwm(size_t n) { void *p;\n"
	"  if (!n) n = 1;\n"
	"  while (!(p = malloc(n))) { void (*h)(void) = handler(); if (!h) abort(); h(); }\n"
	"  return p; }\n"
	"void *_Znam(size_t n) { return _Znwm(n); }\n"
	"void _ZdlPv(void *p) { free(p); }\n"
	"void _ZdaPv(void *p) { free(p); }\n";

static const char handler[] =
	"void (*handler(void))(void) { return 0; } void abort(void) { for (;;); }\n";

/* Some of its blocks are its own. */
static const char pooled[] =
	"#include <stddef.h>\n"
	"void *malloc(size_t); void free(void *);\n"
	"static char pool[4096]; static size_t used; size_t calls;\n"
	"void *_Znwm(size_t n) {\n"
	"  if (n < 64 && used + 64 <= sizeof(pool)) return pool + (used += 64) - 64;\n"
	"  void *p = malloc(n); calls++; return p; }\n"
	"void _ZdlPv(void *p) { free(p); }\n";

/* It refills itself through a function that the program may use as well (-DPROGRAM=1). */
static const char refilled[] =
	"#include <stddef.h>\n"
	"void *malloc(size_t); void free(void *);\n"
	"#define LOCAL __attribute__((noipa, visibility(\"hidden\")))\n"
	"static char *block; static size_t left, calls;\n"
	"LOCAL void *checked(size_t n) { void *p = malloc(n); if (!p) __builtin_trap(); return p; "
	"}\n"
	"LOCAL void refill(void) { block = checked(65536); left = 65536; }\n"
	"#if HEADERS\n"
	"void *_Znwm(size_t n) { return (char *)checked(n + 16) + 16; }\n"
	"void *_Znam(size_t n) { return n < left ? block + (left -= n) : (char *)checked(n + 16) + "
	"16; }\n"
	"void _ZdlPv(void *p) { free((char *)p - 16); calls++; }\n"
	"#else\n"
	"void *_Znwm(size_t n) { if (left < n) refill(); left -= n; return block + left; }\n"
	"void _ZdlPv(void *p) { calls++; }\n"
	"#endif\n"
	"#if PROGRAM\n"
	"void *program(size_t n) { calls++; return (char *)checked(n + 1) + 1; }\n"
	"#endif\n";

static const char forwarder[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n#include <stddef.h>\n"
	"static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t);\n"
	"static void (*real_free)(void *);\n"
	"static void init(void) { real_malloc = dlsym(RTLD_NEXT, \"malloc\");\n"
	"  real_calloc = dlsym(RTLD_NEXT, \"calloc\"); real_free = dlsym(RTLD_NEXT, \"free\"); }\n"
	"void *malloc(size_t n) { if (!real_malloc) init(); return real_malloc(n); }\n"
	"void *calloc(size_t m, size_t n) { if (!real_calloc) return 0;\n"
	"  return real_calloc(m, n); }\n"
	"void free(void *p) { if (!real_free) init(); real_free(p); }\n"
	"void **slot(void) { return (void **)&real_malloc; }\n";

/* Its pointers lead to functions of its own that replace themselves. */
static const char self_replacing[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n#include <stddef.h>\n"
	"static void *first_malloc(size_t n); static void first_free(void *p);\n"
	"static void *(*real_malloc)(size_t) = first_malloc;\n"
	"static void (*real_free)(void *) = first_free;\n"
	"static void *first_malloc(size_t n) { real_malloc = dlsym(RTLD_NEXT, \"malloc\");\n"
	"  return real_malloc(n); }\n"
	"static void first_free(void *p) { real_free = dlsym(RTLD_NEXT, \"free\"); real_free(p); "
	"}\n"
	"void *malloc(size_t n) { return real_malloc(n); }\n"
	"void free(void *p) { real_free(p); }\n";

/* While dlsym() runs, which may allocate, it has blocks of its own. */
static const char bootstrapping[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n#include <stddef.h>\n"
	"static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t);\n"
	"static void (*real_free)(void *);\n"
	"static char boot[4096]; static size_t used; static int inside;\n"
	"static __attribute__((noinline)) void init(void) { inside = 1;\n"
	"  real_malloc = dlsym(RTLD_NEXT, \"malloc\"); real_calloc = dlsym(RTLD_NEXT, "
	"\"calloc\");\n"
	"  real_free = dlsym(RTLD_NEXT, \"free\"); inside = 0; }\n"
	"void *malloc(size_t n) { if (!real_malloc) init(); return real_malloc(n); }\n"
	"void *calloc(size_t m, size_t n) {\n"
	"  if (inside) { used += m * n; return boot + used - m * n; }\n"
	"  if (!real_calloc) init(); return real_calloc(m, n); }\n"
	"void free(void *p) { if ((char *)p < boot || (char *)p >= boot + 4096) real_free(p); }\n";

/* Pointers to its own, in a file that also happens to use dlsym(). */
static const char own_pointers[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n#include <stddef.h>\n"
	"static char pool[4096]; static size_t used;\n"
	"static void *own_malloc(size_t n) { return pool + (used += n) - n; }\n"
	"static void own_free(void *p) { used -= 1; }\n"
	"void *(*malloc_pointer)(size_t) __attribute__((visibility(\"hidden\"))) = own_malloc;\n"
	"void (*free_pointer)(void *) __attribute__((visibility(\"hidden\"))) = own_free;\n"
	"void *malloc(size_t n) { return malloc_pointer(n); }\n"
	"void free(void *p) { free_pointer(p); }\n"
	"void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }\n";

/* Its own hook, which nobody has set. */
static const char hooked[] =
	"#include <stddef.h>\n"
	"static char pool[4096]; static size_t used;\n"
	"static void *(*hook)(size_t);\n"
	"void set_hook(void *(*to)(size_t)) { hook = to; }\n"
	"void *malloc(size_t n) { return hook ? hook(n) : pool + (used += n) - n; }\n"
	"void free(void *p) { used -= p != 0; }\n";

#define SHARED "-shared -fPIC -fno-builtin -nostartfiles "

static const char *const styles[] = {
	SHARED "-O0",
	SHARED "-O2",
	SHARED "-Os -fno-plt",
	SHARED "-O2 -fcf-protection=full -Wl,-z,ibtplt",
	SHARED "-O1 -fcf-protection=full -fno-plt -Wl,-z,now",
	SHARED "-O3 -fno-semantic-interposition -fno-asynchronous-unwind-tables",
};

static void add_base(struct linked *linked)
{
	fixture_compile("base", ".c", base, SHARED "-O2 -fno-semantic-interposition");
	linked_add(linked, fixture_path("base"));
}

static void check_base(const struct linked *linked, uint32_t module)
{
	assert_non_null(linked_point(linked, module, "malloc"));
	assert_non_null(linked_point(linked, module, "calloc"));
	assert_non_null(linked_point(linked, module, "realloc"));
	assert_non_null(linked_point(linked, module, "free"));
}

static void check_source(const char *source, const char *style, const char *points)
{
	struct linked linked;

	linked_init(&linked, -1, NULL);
	fixture_compile("outer", ".c", source, style);
	linked_add(&linked, fixture_path("outer"));
	add_base(&linked);
	linked_find(&linked);
	linked_check_points(&linked, 0, points);
	check_base(&linked, 1);
	linked_fini(&linked);
}

static void test_operators(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(styles); i++)
		check_source(operators, styles[i], "");
	/* A program at fixed addresses. */
	fixture_compile("handler", ".c", handler, SHARED);
	check_source(operators, "-no-pie -nostdlib -Wl,-e,_Znwm -O2 -L. -l:handler -l:base", "");
}

static void test_own_way(void **state)
{
	struct linked linked;
	const struct module_points *points;

	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		linked_init(&linked, -1, NULL);
		fixture_compile("pooled", ".c", pooled, styles[i]);
		linked_add(&linked, fixture_path("pooled"));
		add_base(&linked);
		linked_find(&linked);
		/* What it counts it must see freed. */
		linked_check_points(&linked, 0, "_Znwm _ZdlPv");
		points = &linked.points->modules[0];
		assert_int_equal(points->nested_count, 0);
		assert_int_equal(points->foreign_count, 1);
		assert_in_range(points->foreign[0], linked_offset(&linked, 0, "_Znwm"),
				linked_offset(&linked, 0, "_Znwm") + 256);
		check_base(&linked, 1);
		linked_fini(&linked);
	}
}

static void check_refilled(const char *options, const char *points, size_t foreign)
{
	char style[256];
	struct linked linked;

	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		/* Functions are told apart by their unwind information. */
		if (strstr(styles[i], "-fno-asynchronous"))
			continue;
		snprintf(style, sizeof(style), "%s %s", styles[i], options);
		linked_init(&linked, -1, NULL);
		fixture_compile("refilled", ".c", refilled, style);
		linked_add(&linked, fixture_path("refilled"));
		add_base(&linked);
		linked_find(&linked);
		linked_check_points(&linked, 0, points);
		assert_int_equal(linked.points->modules[0].foreign_count, foreign);
		check_base(&linked, 1);
		linked_fini(&linked);
	}
}

/* What the program allocates must not be taken for a refill, only because a refill is, too. */
static void test_shared_helper(void **state)
{
	check_refilled("-DPROGRAM=0", "_Znwm _ZdlPv", 1);
	check_refilled("-DPROGRAM=1", "_Znwm _ZdlPv", 0);
	/* Each block would count twice. */
	check_refilled("-DHEADERS=1 -DPROGRAM=0", "_Znwm _Znam _ZdlPv", 1);
	check_refilled("-DHEADERS=1 -DPROGRAM=1", "_Znwm _Znam _ZdlPv", 1);
}

static void test_forwarder(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		check_source(forwarder, styles[i], "");
		check_source(self_replacing, styles[i], "");
		check_source(own_pointers, styles[i], "malloc free");
		check_source(hooked, styles[i], "malloc free");
	}
}

/* Its calloc counts, and the one that it may jump to cannot. */
static void test_bootstrapping(void **state)
{
	struct linked linked;

	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		linked_init(&linked, -1, NULL);
		fixture_compile("boot", ".c", bootstrapping, styles[i]);
		linked_add(&linked, fixture_path("boot"));
		add_base(&linked);
		linked_find(&linked);
		/* Where calloc counts and calls others, so does malloc: it may wrap blocks, too. */
		linked_check_points(&linked, 0,
				    linked_point(&linked, 0, "malloc") ? "malloc calloc free"
								       : "calloc free");
		assert_true(!linked_point(&linked, 0, "malloc") ||
			    linked.points->modules[0].foreign_count);
		assert_non_null(linked_point(&linked, 1, "malloc"));
		/* By a call, it is told by its return address; by a jump, it is left out. */
		assert_true(linked_left_out(&linked, 1, "calloc") ||
			    linked.points->modules[0].foreign_count);
		linked_fini(&linked);
	}
}

static void test_no_other(void **state)
{
	struct linked linked;

	linked_init(&linked, -1, NULL);
	fixture_compile("alone", ".c", forwarder, styles[1]);
	linked_add(&linked, fixture_path("alone"));
	linked_find(&linked);
	/* Nothing else would count. */
	linked_check_points(&linked, 0, "malloc calloc free");
	linked_fini(&linked);
}

static void test_chain(void **state)
{
	struct linked linked;

	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		linked_init(&linked, -1, NULL);
		fixture_compile("operators", ".c", operators, styles[i]);
		linked_add(&linked, fixture_path("operators"));
		fixture_compile("first", ".c", forwarder, styles[i]);
		linked_add(&linked, fixture_path("first"));
		fixture_compile("second", ".c", self_replacing, styles[1]);
		linked_add(&linked, fixture_path("second"));
		add_base(&linked);
		linked_find(&linked);
		for (uint32_t module = 0; module < 3; module++)
			linked_check_points(&linked, module, "");
		check_base(&linked, 3);
		linked_fini(&linked);
	}
}

/* A call of a forwarder on behalf of one that counts: the end of the chain is in another file. */
static void test_call_of_forwarder(void **state)
{
	struct linked linked;

	linked_init(&linked, -1, NULL);
	fixture_compile("pooled", ".c", pooled, styles[1]);
	linked_add(&linked, fixture_path("pooled"));
	fixture_compile("first", ".c", forwarder, styles[1]);
	linked_add(&linked, fixture_path("first"));
	add_base(&linked);
	linked_find(&linked);
	linked_check_points(&linked, 0, "_Znwm _ZdlPv");
	linked_check_points(&linked, 1, "");
	assert_int_equal(linked.points->modules[0].foreign_count, 1);
	assert_int_equal(linked.points->modules[0].nested_count, 0);
	linked_fini(&linked);
}

/* Functions that a file keeps to itself are not found by name. */
static void test_local_names(void **state)
{
	struct linked linked;

	linked_init(&linked, -1, NULL);
	fixture_compile("local", ".c",
			"static char pool[4096]; static long used;\n"
			"static __attribute__((noipa)) void *malloc(long n) { return pool + n; }\n"
			"static __attribute__((noipa)) void free(void *p) { used--; }\n"
			"void *use(long n) { free(malloc(n)); return pool; }\n",
			styles[1]);
	linked_add(&linked, fixture_path("local"));
	fixture_compile("operators", ".c", operators, styles[1]);
	linked_add(&linked, fixture_path("operators"));
	add_base(&linked);
	linked_find(&linked);
	linked_check_points(&linked, 0, "malloc free");
	linked_check_points(&linked, 1, "");
	assert_string_equal(linked_left_out(&linked, 1, "_Znwm")->other, "malloc");
	check_base(&linked, 2);
	linked_fini(&linked);
}

struct wanted {
	const char *name;
	uint64_t bias;
	char path[256];
};

static int find_object(struct dl_phdr_info *info, size_t size, void *context)
{
	struct wanted *wanted = context;

	if (!strstr(info->dlpi_name, wanted->name))
		return 0;
	wanted->bias = info->dlpi_addr;
	snprintf(wanted->path, sizeof(wanted->path), "%s", info->dlpi_name);
	return 1;
}

static void add_from_memory(struct linked *linked, const char *name)
{
	struct wanted wanted = {.name = name};

	assert_int_equal(dl_iterate_phdr(find_object, &wanted), 1);
	linked_add_loaded(linked, wanted.path, wanted.bias);
}

static void *open_library(const char *name, const char *source, const char *style, int flags)
{
	void *library;

	fixture_compile(name, ".c", source, style);
	library = dlopen(fixture_path(name), flags | RTLD_LOCAL);
	if (!library)
		fail_msg("%s", dlerror());
	return library;
}

/* The forwarder's functions that are probed, as they are in this process now. */
static void check_memory(const char *name, const char *points, bool with_libc)
{
	int memory_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	struct linked linked;

	assert_true(memory_fd >= 0);
	linked_init(&linked, memory_fd, NULL);
	add_from_memory(&linked, name);
	if (with_libc)
		add_from_memory(&linked, "/libc.so.6");
	linked_find(&linked);
	linked_check_points(&linked, 0, points);
	linked_fini(&linked);
	close(memory_fd);
}

static void test_memory(void **state)
{
	static const char *const names[] = {"m0", "m1", "m2", "m3", "m4", "m5"};

	for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
		void *library = open_library(names[i], forwarder, styles[i], RTLD_LAZY);
		void *(*my_malloc)(size_t) = dlsym(library, "malloc");
		void (*my_free)(void *) = dlsym(library, "free");
		void **(*slot)(void) = dlsym(library, "slot");
		void *page;

		/* Nothing is set yet, then all that malloc sets. */
		check_memory(names[i], "", true);
		my_free(my_malloc(1));
		check_memory(names[i], "", true);
		/* What it leads to is in no file that is known, or no allocation function. */
		check_memory(names[i], "malloc calloc free", false);
		page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*slot() = page;
		check_memory(names[i], "malloc free", true);
		*slot() = dlsym(RTLD_DEFAULT, "strlen");
		check_memory(names[i], "malloc free", true);
		*slot() = slot;
		check_memory(names[i], "malloc free", true);
		munmap(page, 4096);
		dlclose(library);
	}
}

static void test_lazy(void **state)
{
	struct linked linked;
	int memory_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	void *library;

	fixture_compile("handler", ".c", handler, SHARED);
	library = open_library("lazy", operators,
			       SHARED "-O2 -Wl,-z,lazy -L. -l:handler -Wl,-rpath,'$ORIGIN'",
			       RTLD_LAZY);
	linked_init(&linked, memory_fd, NULL);
	add_from_memory(&linked, "/lazy");
	add_from_memory(&linked, "/libc.so.6");
	linked_find(&linked);
	linked_check_points(&linked, 0, "");
	assert_string_equal(linked_left_out(&linked, 0, "_Znwm")->other, "malloc");
	linked_fini(&linked);
	dlclose(library);
	close(memory_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operators),     cmocka_unit_test(test_own_way),
		cmocka_unit_test(test_shared_helper), cmocka_unit_test(test_forwarder),
		cmocka_unit_test(test_bootstrapping), cmocka_unit_test(test_no_other),
		cmocka_unit_test(test_chain),	      cmocka_unit_test(test_call_of_forwarder),
		cmocka_unit_test(test_local_names),   cmocka_unit_test(test_memory),
		cmocka_unit_test(test_lazy),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
