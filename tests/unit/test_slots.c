/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* slots: the relocations that fill words with functions' addresses; functions: where they begin. */
#include "linkage_fixture.h"

#include "elf/functions.h"
#include "elf/plt.h"
#include "elf/slots.h"

static const char source[] =
	"#include <stddef.h>\n"
	"void *malloc(size_t); void free(void *); size_t strlen(const char *);\n"
	"static int one(void) { return 1; }\n"
	"static void *choose(void) { return one; }\n"
	"static int chosen(void) __attribute__((ifunc(\"choose\")));\n"
	"int (*relative)(void) __attribute__((visibility(\"hidden\"))) = one;\n"
	"void (*named)(void *) __attribute__((visibility(\"hidden\"))) = free;\n"
	"int (*nothing)(void) __attribute__((visibility(\"hidden\")));\n"
	"void *f(size_t n) { chosen(); relative(); named(0); nothing(); return malloc(n); }\n"
	"size_t g(const char *s) { return strlen(s); }\n";

static const struct slot *find(const struct slots *slots, const char *name, bool in_plt)
{
	for (size_t i = 0; i < slots->count; i++)
		if (slots->entries[i].name && !strcmp(slots->entries[i].name, name) &&
		    (slots->entries[i].index != SLOT_NOT_IN_PLT) == in_plt)
			return &slots->entries[i];
	return NULL;
}

static void check_slots(const struct slots *slots)
{
	size_t resolvers = 0;

	for (size_t i = 0; i < slots->count; i++) {
		const struct slot *slot = &slots->entries[i];

		assert_true(!slot->name == !!slot->resolver);
		if (i)
			assert_true(slot[-1].address <= slot->address);
		assert_int_equal(slots_at(slots, slot->address)->address, slot->address);
		resolvers += !slot->name;
	}
	assert_int_equal(resolvers, 1);
	assert_null(slots_at(slots, 1));
	assert_null(slots_at(slots, UINT64_MAX));
}

static void test_lazy(void **state)
{
	struct image *image;
	struct slots slots;
	uint64_t start = 0;

	fixture_compile("lazy", ".c", source, "-shared -fPIC -O2 -fno-builtin -Wl,-z,lazy");
	image = fixture_open(fixture_path("lazy"));
	assert_int_equal(slots_load(image_elf(image), &slots), 0);
	check_slots(&slots);
	assert_non_null(find(&slots, "malloc", true));
	assert_non_null(find(&slots, "strlen", true));
	/* The variable that a relocation of type 64 names. */
	assert_non_null(find(&slots, "free", false));
	assert_false(slots_find_relative(image_elf(image), find(&slots, "free", false)->address,
					 &start));
	slots_fini(&slots);
	image_free(image);
}

static void test_no_plt(void **state)
{
	struct image *image;
	struct slots slots;

	fixture_compile("now", ".c", source, "-shared -fPIC -O2 -fno-builtin -fno-plt");
	image = fixture_open(fixture_path("now"));
	assert_int_equal(slots_load(image_elf(image), &slots), 0);
	check_slots(&slots);
	assert_non_null(find(&slots, "malloc", false));
	assert_null(find(&slots, "malloc", true));
	slots_fini(&slots);
	image_free(image);
}

static void test_relative(void **state)
{
	struct linked linked;
	uint64_t variable = 0, start = 0;

	fixture_compile("relative", ".s",
			ASM_MACROS "	.text\n"
				   "	func one\n	ret\n	endfunc one\n"
				   "	.hidden one\n"
				   "	func variable\n	.quad one\n	endfunc variable\n"
				   "	func other\n	.quad 5\n	endfunc other\n",
			"-shared -nostdlib -Wl,-z,notext");
	linked_init(&linked, -1, NULL);
	linked_add(&linked, fixture_path("relative"));
	variable = linked_address(&linked, 0, "variable");
	assert_true(slots_find_relative(image_elf(linked.images[0]), variable, &start));
	assert_int_equal(start, linked_address(&linked, 0, "one"));
	assert_false(slots_find_relative(image_elf(linked.images[0]),
					 linked_address(&linked, 0, "other"), &start));
	linked_fini(&linked);
}

static void test_functions(void **state)
{
	struct image *image;
	struct symtab *symtab;
	struct functions functions;
	uint64_t f;

	fixture_compile("table", ".c", source, "-shared -fPIC -O2 -fno-builtin");
	image = fixture_open(fixture_path("table"));
	assert_int_equal(symtab_load(image, &symtab), 0);
	functions = functions_load(image);
	assert_in_range(functions.count, 2, 100);
	f = symtab_find(symtab, "f")->start;
	assert_true(functions_begin(&functions, f));
	assert_true(functions_begin(&functions, symtab_find(symtab, "g")->start));
	assert_false(functions_begin(&functions, f + 1));
	assert_false(functions_begin(&functions, 0));
	assert_false(functions_begin(&functions, UINT64_MAX));
	symtab_free(symtab);
	image_free(image);
	fixture_compile("none", ".c", "int f(void) { return 0; }",
			"-shared -fPIC -nostdlib -fno-asynchronous-unwind-tables "
			"-Wl,--no-eh-frame-hdr");
	image = fixture_open(fixture_path("none"));
	functions = functions_load(image);
	assert_int_equal(functions.count, 0);
	assert_false(functions_begin(&functions, 0x1000));
	image_free(image);
}

/* Each section is read once: a small file could have them by the thousand, all with its bytes. */
static void test_repeated(void **state)
{
	static const char *const names[] = {".rela.dyn", ".rela.plt", ".plt"};
	struct image *image;
	struct slots slots, repeated;
	struct plt plt, repeated_plt;

	fixture_compile("once", ".c", source, "-shared -fPIC -O2 -fno-builtin -Wl,-z,lazy");
	image = fixture_open(fixture_path("once"));
	assert_int_equal(slots_load(image_elf(image), &slots), 0);
	assert_int_equal(plt_find(image_elf(image), &plt), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct image *twice =
			fixture_open_repeated(fixture_path("once"), names[i], ".comment");

		assert_int_equal(slots_load(image_elf(twice), &repeated), 0);
		assert_int_equal(repeated.count, slots.count);
		slots_fini(&repeated);
		assert_int_equal(plt_find(image_elf(twice), &repeated_plt), 0);
		assert_int_equal(repeated_plt.count, plt.count);
		free(repeated_plt.stubs);
		image_free(twice);
	}
	slots_fini(&slots);
	free(plt.stubs);
	image_free(image);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct functions functions;
	struct slots slots;
	uint64_t start;

	if (image_open(fd, "damaged", &image))
		return;
	assert_int_equal(slots_load(image_elf(image), &slots), 0);
	for (size_t i = 0; i < slots.count; i++)
		assert_non_null(slots_at(&slots, slots.entries[i].address));
	slots_find_relative(image_elf(image), 0x4000, &start);
	functions = functions_load(image);
	for (uint64_t at = 0; at < 0x3000; at += 16)
		functions_begin(&functions, at);
	slots_fini(&slots);
}

static void test_damage(void **state)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	size_t size;

	fixture_compile("good", ".c", source, "-shared -fPIC -O2 -fno-builtin -nostdlib -s");
	bytes = fixture_read(fixture_path("good"), &size);
	fixture_damage(bytes, size, check_damaged);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lazy),	 cmocka_unit_test(test_no_plt),
		cmocka_unit_test(test_relative), cmocka_unit_test(test_functions),
		cmocka_unit_test(test_repeated), cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
