/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* linkage: functions of several files, and where the words lead through which they are called. */
#include "linkage_fixture.h"

#include "elf/plt.h"
#include "elf/slots.h"

#define TEXT                                                                                       \
	ASM_MACROS                                                                                 \
	"	.macro word name,value\n"                                                                \
	"	.pushsection .data\n"                                                                    \
	"	.globl \\name\n"                                                                         \
	"	.type \\name,@function\n"                                                                \
	"	\\name: .quad \\value\n"                                                                 \
	"	.size \\name,8\n"                                                                        \
	"	.popsection\n"                                                                           \
	"	.endm\n"                                                                                 \
	"	.text\n"

/* Words with relocations and without. */
static const char first[] = TEXT "	func malloc\n	ret\n	endfunc malloc\n"
				 "	func je_free\n	ret\n	endfunc je_free\n"
				 "	func own\n	ret\n	endfunc own\n"
				 "	.type free,@function\n"
				 "free:	ret\n	.size free,.-free\n"
				 "	word word_free,free\n"
				 "	word word_calloc,calloc\n"
				 "	word word_strange,strange\n"
				 "	word word_malloc,malloc\n"
				 "	word word_own,own\n"
				 "	word word_local,local\n"
				 "	.type local,@function\n"
				 "local:	ret\n"
				 "	word word_empty,0\n";

static const char second[] = TEXT "	func malloc\n	ret\n	endfunc malloc\n"
				  "	func free\n	ret\n	endfunc free\n"
				  "	func calloc\n	ret\n	endfunc calloc\n"
				  "	func own\n	ret\n	endfunc own\n"
				  "	word word_malloc,malloc\n"
				  "	word word_ifunc,chosen\n"
				  "	.type chosen,@gnu_indirect_function\n"
				  "	.hidden chosen\n	.globl chosen\n"
				  "chosen:	ret\n";

#define OPTIONS "-shared -nostdlib"

/* The modules' biases in the memory that is made for them. */
#define FIRST_BIAS  0x100000
#define SECOND_BIAS 0x200000
#define LAZY_BIAS   0x280000

static void load(struct linked *linked, int memory_fd)
{
	bool loaded = memory_fd >= 0;

	linked_init(linked, memory_fd, NULL);
	fixture_compile("first", ".s", first, OPTIONS);
	linked_add_loaded(linked, fixture_path("first"), loaded ? FIRST_BIAS : LINKAGE_NOT_LOADED);
	fixture_compile("second", ".s", second, OPTIONS);
	linked_add_loaded(linked, fixture_path("second"),
			  loaded ? SECOND_BIAS : LINKAGE_NOT_LOADED);
}

static struct place place_of(const struct linked *linked, uint32_t module, const char *name)
{
	return (struct place){module, linked_address(linked, module, name)};
}

/* to: in which module, or UINT32_MAX if it is not known. */
static void check(const struct linked *linked, uint32_t module, const char *word, uint32_t to,
		  const char *name)
{
	struct place slot = place_of(linked, module, word), place = {};
	bool known = linkage_follow(linked->linkage, slot, &place);

	if (known != (to != UINT32_MAX) || (known && place.module != to))
		fail_msg("%s leads to %d %u", word, known, place.module);
	if (known)
		assert_int_equal(place.vaddr, linked_address(linked, to, name));
}

static void test_functions(void **state)
{
	const struct linked_function *functions;
	struct linked linked;
	size_t count;

	load(&linked, -1);
	assert_int_equal(linkage_count(linked.linkage), 2);
	assert_ptr_equal(linkage_image(linked.linkage, 1), linked.images[1]);
	assert_false(linkage_is_loaded(linked.linkage, 0));
	functions = linkage_functions(linked.linkage, 0, &count);
	assert_int_equal(count, 3);
	assert_string_equal(functions[0].name, "malloc");
	assert_true(functions[0].exported);
	assert_int_equal(functions[0].start, linked_address(&linked, 0, "malloc"));
	assert_int_equal(functions[0].size, 1);
	assert_string_equal(functions[1].name, "je_free");
	assert_int_not_equal(functions[1].family, functions[0].family);
	assert_string_equal(functions[2].name, "free");
	assert_false(functions[2].exported);
	assert_int_equal(linkage_add_function(linked.linkage, 0, "strange", 1, 1), 0);
	assert_int_equal(linkage_add_function(linked.linkage, 0, "calloc", 0x1000, 7), 0);
	functions = linkage_functions(linked.linkage, 0, &count);
	assert_int_equal(count, 4);
	assert_string_equal(functions[3].name, "calloc");
	assert_int_equal(functions[3].size, 7);
	assert_false(functions[3].exported);
	assert_true(linkage_imports(linked.linkage, 0, "calloc"));
	assert_false(linkage_imports(linked.linkage, 0, "dlsym"));
	linked_fini(&linked);
}

static void test_too_many_functions(void **state)
{
	struct linked linked;
	size_t count;

	load(&linked, -1);
	for (uint64_t i = 0; i < LINKAGE_MAX_FUNCTIONS; i++) {
		assert_int_equal(linkage_add_function(linked.linkage, 0, "malloc", i, 1), 0);
		assert_int_equal(linkage_is_truncated(linked.linkage, 0),
				 i >= LINKAGE_MAX_FUNCTIONS - 3);
	}
	linkage_functions(linked.linkage, 0, &count);
	assert_int_equal(count, LINKAGE_MAX_FUNCTIONS);
	assert_false(linkage_is_truncated(linked.linkage, 1));
	linked_fini(&linked);
}

static void test_names(void **state)
{
	struct linked linked;

	load(&linked, -1);
	assert_string_equal(linkage_slot_name(linked.linkage, place_of(&linked, 0, "word_calloc")),
			    "calloc");
	assert_null(linkage_slot_name(linked.linkage, place_of(&linked, 0, "word_empty")));
	/* Its own free is local: no name stands in the file, but the address. */
	check(&linked, 0, "word_free", 0, "free");
	check(&linked, 0, "word_calloc", 1, "calloc");
	check(&linked, 0, "word_malloc", 0, "malloc");
	check(&linked, 1, "word_malloc", 0, "malloc");
	check(&linked, 0, "word_own", 0, "own");
	check(&linked, 0, "word_local", 0, "local");
	check(&linked, 0, "word_strange", UINT32_MAX, NULL);
	check(&linked, 0, "word_empty", UINT32_MAX, NULL);
	linked_fini(&linked);
}

static void test_ifunc(void **state)
{
	struct place place;
	struct linked linked;

	load(&linked, -1);
	assert_true(linkage_follow(linked.linkage, place_of(&linked, 1, "word_ifunc"), &place));
	assert_int_equal(place.module, LINKAGE_ELSEWHERE);
	linked_fini(&linked);
}

static void put(int fd, const struct linked *linked, uint32_t module, const char *word,
		uint64_t address)
{
	off_t at = (module ? SECOND_BIAS : FIRST_BIAS) + linked_address(linked, module, word);

	assert_int_equal(pwrite(fd, &address, sizeof(address), at), sizeof(address));
}

static void test_memory(void **state)
{
	int fd = memfd_create("memory", MFD_CLOEXEC);
	struct place place;
	struct linked linked;

	assert_true(fd >= 0);
	load(&linked, fd);
	assert_true(linkage_is_loaded(linked.linkage, 1));
	/* Nothing can be read, then nothing is there. */
	for (int i = 0; i < 2; i++) {
		check(&linked, 0, "word_calloc", 1, "calloc");
		check(&linked, 0, "word_free", UINT32_MAX, NULL);
		check(&linked, 0, "word_empty", UINT32_MAX, NULL);
		assert_int_equal(ftruncate(fd, 0x300000), 0);
	}
	/* Memory is right, be it against the order of the files. */
	put(fd, &linked, 1, "word_malloc", SECOND_BIAS + linked_address(&linked, 1, "malloc"));
	check(&linked, 1, "word_malloc", 1, "malloc");
	put(fd, &linked, 0, "word_calloc", FIRST_BIAS + linked_address(&linked, 0, "malloc"));
	check(&linked, 0, "word_calloc", 1, "calloc");
	put(fd, &linked, 0, "word_calloc", SECOND_BIAS + linked_address(&linked, 1, "own"));
	check(&linked, 0, "word_calloc", 1, "own");
	put(fd, &linked, 0, "word_empty", SECOND_BIAS + linked_address(&linked, 1, "free"));
	check(&linked, 0, "word_empty", 1, "free");
	/* Into its own file, but to no function of that name: not bound yet. */
	put(fd, &linked, 0, "word_calloc", FIRST_BIAS + linked_address(&linked, 0, "own"));
	check(&linked, 0, "word_calloc", 1, "calloc");
	/* Outside of all files. */
	put(fd, &linked, 0, "word_empty", 0x7fff00000000);
	assert_true(linkage_follow(linked.linkage, place_of(&linked, 0, "word_empty"), &place));
	assert_int_equal(place.module, LINKAGE_ELSEWHERE);
	put(fd, &linked, 0, "word_calloc", 0x7fff00000000);
	assert_true(linkage_follow(linked.linkage, place_of(&linked, 0, "word_calloc"), &place));
	assert_int_equal(place.module, LINKAGE_ELSEWHERE);
	linked_fini(&linked);
	close(fd);
}

/* While the dynamic linker is at work, the slots that it comes to later are as in the file. */
static void test_unrelocated(void **state)
{
	int fd = memfd_create("memory", MFD_CLOEXEC);
	struct slots slots;
	struct place place;
	struct linked linked;
	const uint8_t *bytes;
	size_t size;

	assert_true(fd >= 0);
	load(&linked, fd);
	fixture_compile("lazy", ".s",
			TEXT "	func use\n	call calloc@plt\n	ret\n	endfunc use\n",
			OPTIONS " -Wl,-z,lazy,-z,norelro");
	linked_add_loaded(&linked, fixture_path("lazy"), LAZY_BIAS);
	assert_int_equal(slots_load(image_elf(linked.images[2]), &slots), 0);
	assert_int_equal(slots.count, 1);
	place = (struct place){2, slots.entries[0].address};
	bytes = image_bytes(linked.images[2], place.vaddr, 8, &size);
	assert_non_null(bytes);
	assert_memory_not_equal(bytes, (uint64_t[]){0}, 8);
	assert_int_equal(pwrite(fd, bytes, 8, LAZY_BIAS + place.vaddr), 8);
	assert_true(linkage_follow(linked.linkage, place, &place));
	assert_int_equal(place.module, 1);
	assert_int_equal(place.vaddr, linked_address(&linked, 1, "calloc"));
	slots_fini(&slots);
	linked_fini(&linked);
	close(fd);
}

/* A program at fixed addresses whose code has a function's address: that is its own stub's. */
static void test_stub(void **state)
{
	int fd = memfd_create("memory", MFD_CLOEXEC);
	struct plt plt = {};
	struct linked linked;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 0x300000), 0);
	load(&linked, fd);
	fixture_compile(
		"canonical", ".s",
		TEXT "	func start\n	mov $calloc,%edi\n	call calloc@plt\n	ret\n"
		     "	endfunc start\n",
		"-no-pie -nostdlib -Wl,-e,start -L. -l:second");
	linked_add_loaded(&linked, fixture_path("canonical"), 0);
	assert_int_equal(plt_find(image_elf(linked.images[2]), &plt), 0);
	assert_int_equal(plt.count, 1);
	put(fd, &linked, 0, "word_calloc", plt.stubs[0].start);
	check(&linked, 0, "word_calloc", 1, "calloc");
	/* Anything else there is what the slot was set to. */
	put(fd, &linked, 0, "word_calloc", linked_address(&linked, 2, "start"));
	check(&linked, 0, "word_calloc", 2, "start");
	free(plt.stubs);
	linked_fini(&linked);
	close(fd);
}

/* A program at fixed addresses has pointers without relocations. */
static void test_fixed_address(void **state)
{
	struct linked linked;

	fixture_compile("fixed", ".s",
			TEXT "	func malloc\n	ret\n	endfunc malloc\n"
			     "	word word,malloc\n",
			"-static -nostdlib -no-pie -Wl,-e,malloc");
	linked_init(&linked, -1, NULL);
	linked_add(&linked, fixture_path("fixed"));
	check(&linked, 0, "word", 0, "malloc");
	linked_fini(&linked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions), cmocka_unit_test(test_too_many_functions),
		cmocka_unit_test(test_names),	  cmocka_unit_test(test_ifunc),
		cmocka_unit_test(test_memory),	  cmocka_unit_test(test_unrelocated),
		cmocka_unit_test(test_stub),	  cmocka_unit_test(test_fixed_address),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
