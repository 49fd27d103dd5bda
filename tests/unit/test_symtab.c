/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* symtab: which symbol names an address, and which address a name has. */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/symbols.h"
#include "elf/symtab.h"

/* Symbols of every kind, laid out by hand: 16 bytes each. */
static const char source[] =
	"	.text\n"
	"	.globl base\n"
	"	.balign 4096\n"
	"base:\n"
	/* +0: one address, three bindings */
	"	.type local_f,@function\n"
	"local_f: .size local_f,16\n"
	"	.weak weak_f\n"
	"	.type weak_f,@function\n"
	"weak_f: .size weak_f,16\n"
	"	.globl global_f\n"
	"	.type global_f,@function\n"
	"global_f: .size global_f,16\n"
	"	.fill 16,1,0x90\n"
	/* +16: a gap that no function covers */
	"	.fill 16,1,0x90\n"
	/* +32: outer covers inner */
	"	.globl outer\n"
	"	.type outer,@function\n"
	"outer: .size outer,48\n"
	"	.fill 16,1,0x90\n"
	"	.globl inner\n"
	"	.type inner,@function\n"
	"inner: .size inner,16\n"
	"	.fill 32,1,0x90\n"
	/* +80: size unknown, then a sized one, then again unknown to the end */
	"	.globl unsized\n"
	"	.type unsized,@function\n"
	"unsized: .fill 16,1,0x90\n"
	"	.globl sized\n"
	"	.type sized,@function\n"
	"sized: .size sized,8\n"
	"	.fill 16,1,0x90\n"
	"	.globl last\n"
	"	.type last,@function\n"
	"last: .fill 16,1,0x90\n"
	/* not functions */
	"	.globl data_object\n"
	"	.type data_object,@object\n"
	"data_object: .size data_object,16\n"
	"	.section .text.after,\"ax\"\n"
	"	.fill 64,1,0x90\n";

struct loaded {
	struct image *image;
	struct symtab *symtab;
};

static void load(struct loaded *loaded, const char *name)
{
	loaded->image = fixture_open(fixture_path(name));
	assert_int_equal(symtab_load(loaded->image, &loaded->symtab), 0);
}

static void unload(struct loaded *loaded)
{
	symtab_free(loaded->symtab);
	image_free(loaded->image);
}

static const char *name_at(const struct loaded *loaded, uint64_t vaddr)
{
	const struct symbol *symbol = symtab_lookup(loaded->symtab, vaddr);

	return symbol ? symbol->name : "(none)";
}

static void check_rules(const struct loaded *loaded)
{
	const struct symbol *first = symtab_find(loaded->symtab, "global_f");
	uint64_t base;

	assert_non_null(first);
	assert_int_equal(first->size, 16);
	base = first->start;
	assert_string_equal(name_at(loaded, base), "global_f");
	assert_string_equal(name_at(loaded, base + 15), "global_f");
	assert_string_equal(name_at(loaded, base + 16), "(none)");
	assert_string_equal(name_at(loaded, base + 32), "outer");
	assert_string_equal(name_at(loaded, base + 48), "outer");
	assert_string_equal(name_at(loaded, base + 64), "outer");
	assert_string_equal(name_at(loaded, base + 80), "unsized");
	assert_string_equal(name_at(loaded, base + 95), "unsized");
	assert_string_equal(name_at(loaded, base + 96), "sized");
	assert_string_equal(name_at(loaded, base + 104), "(none)");
	assert_string_equal(name_at(loaded, base + 112), "last");
	assert_string_equal(name_at(loaded, base + 127), "last");
	assert_int_equal(symtab_find(loaded->symtab, "inner")->start, base + 48);
	assert_null(symtab_find(loaded->symtab, "data_object"));
	assert_null(symtab_find(loaded->symtab, "absent"));
	assert_null(symtab_find(loaded->symtab, ""));
	assert_null(symtab_lookup(loaded->symtab, 0));
	assert_null(symtab_lookup(loaded->symtab, UINT64_MAX));
}

static void test_rules(void **state)
{
	struct loaded loaded = {};

	fixture_compile("rules", ".s", source, "-shared -nostdlib");
	load(&loaded, "rules");
	check_rules(&loaded);
	assert_non_null(symtab_find(loaded.symtab, "local_f"));
	/* The section's end, 128 bytes behind base, bounds the last symbol without a size. */
	assert_string_equal(
		name_at(&loaded, symtab_find(loaded.symtab, "global_f")->start + 128 + 64),
		"(none)");
	unload(&loaded);
}

static void test_stripped(void **state)
{
	struct loaded loaded = {};

	fixture_compile("stripped", ".s", source, "-shared -nostdlib -s");
	load(&loaded, "stripped");
	check_rules(&loaded);
	assert_null(symtab_find(loaded.symtab, "local_f"));
	unload(&loaded);
}

static const char versioned[] = "	.text\n"
				"	.globl f_old,f_new,g_old\n"
				"	.type f_old,@function\n"
				"	.type f_new,@function\n"
				"	.type g_old,@function\n"
				"f_old: .fill 16,1,0x90\n"
				"	.size f_old,16\n"
				"f_new: .fill 16,1,0x90\n"
				"	.size f_new,16\n"
				"g_old: .fill 16,1,0x90\n"
				"	.size g_old,16\n"
				"	.symver f_old,f@V1\n"
				"	.symver f_new,f@@V2\n"
				"	.symver g_old,g@V1\n";

static void check_versions(const char *name)
{
	const struct symbol *f, *g;
	struct loaded loaded = {};

	load(&loaded, name);
	f = symtab_find(loaded.symtab, "f");
	g = symtab_find(loaded.symtab, "g");
	assert_non_null(f);
	assert_non_null(g);
	/* f_new lies between f_old and g_old. */
	assert_int_equal(g->start - f->start, 16);
	assert_string_equal(g->name, "g");
	assert_string_equal(name_at(&loaded, f->start - 16), "f");
	unload(&loaded);
}

static void test_versions(void **state)
{
	FILE *script = fopen(fixture_path("versions.map"), "w");

	fputs("V1 { global: f; g; local: *; };\nV2 { global: f; } V1;\n", script);
	fclose(script);
	fixture_compile("versions", ".s", versioned,
			"-shared -nostdlib -Wl,--version-script=versions.map");
	fixture_compile("versions_stripped", ".s", versioned,
			"-shared -nostdlib -s -Wl,--version-script=versions.map");
	check_versions("versions_stripped");
	check_versions("versions");
}

static void test_ifunc(void **state)
{
	struct loaded loaded = {};

	fixture_compile("ifunc", ".c",
			"static int one(void) { return 1; }\n"
			"static void *choose(void) { return one; }\n"
			"int chosen(void) __attribute__((ifunc(\"choose\")));\n"
			"int plain(void) { return 2; }\n",
			"-shared -fPIC");
	load(&loaded, "ifunc");
	assert_true(symtab_find(loaded.symtab, "chosen")->ifunc);
	assert_false(symtab_find(loaded.symtab, "plain")->ifunc);
	unload(&loaded);
}

/* What an image only uses it does not define, though its PLT entry may have an address. */
static void test_undefined(void **state)
{
	struct loaded loaded = {};

	fixture_compile(
		"uses", ".c",
		"#include <stdlib.h>\nint main(void) { return (long)malloc(1) == (long)free; }",
		"-no-pie -fno-pic");
	load(&loaded, "uses");
	assert_null(symtab_find(loaded.symtab, "malloc"));
	assert_null(symtab_find(loaded.symtab, "free"));
	assert_non_null(symtab_find(loaded.symtab, "main"));
	unload(&loaded);
}

/* A small file could have tables by the thousand, each with names of the same bytes. */
static void test_repeated(void **state)
{
	struct symbols once = {}, twice = {};
	struct image *image, *repeated;

	fixture_compile("once", ".c", "int f(void) { return 1; } int g(void) { return f(); }",
			"-shared -fPIC -nostdlib");
	image = fixture_open(fixture_path("once"));
	repeated = fixture_open_repeated(fixture_path("once"), ".dynsym", ".comment");
	assert_int_equal(symbols_add_tables(&once, image_elf(image), SHT_DYNSYM), 0);
	assert_int_equal(symbols_add_tables(&twice, image_elf(repeated), SHT_DYNSYM), 0);
	assert_in_range(once.count, 2, 10);
	assert_int_equal(twice.count, once.count);
	symbols_fini(&once);
	symbols_fini(&twice);
	image_free(image);
	image_free(repeated);
}

static void test_no_symbols(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab = NULL;

	fixture_compile("none", ".s", "	.globl _start\n_start: hlt\n", "-nostdlib -static -s");
	image = fixture_open(fixture_path("none"));
	assert_int_equal(symtab_load(image, &symtab), -ENOENT);
	assert_null(symtab);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;

	if (image_open(fd, "damaged", &image) || symtab_load(image, &symtab))
		return;
	symtab_find(symtab, "outer");
	for (uint64_t vaddr = 0; vaddr < 0x3000; vaddr += 24) {
		const struct symbol *symbol = symtab_lookup(symtab, vaddr);

		if (symbol)
			assert_true(symbol->start <= vaddr && strlen(symbol->name));
	}
}

static void test_damage(void **state)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	size_t size;

	fixture_compile("good", ".s", source, "-shared -nostdlib");
	bytes = fixture_read(fixture_path("good"), &size);
	fixture_damage(bytes, size, check_damaged);
}

static void load_names(struct loaded *loaded, const char *name)
{
	loaded->image = fixture_open(fixture_path(name));
	assert_int_equal(symtab_load_names(loaded->image, NULL, 0, &loaded->symtab), 0);
}

static const char plt_source[] = "#include <stdlib.h>\n"
				 "#include <stdio.h>\n"
				 "static int one(void) { return 1; }\n"
				 "static void *choose(void) { return one; }\n"
				 "int chosen(void) __attribute__((ifunc(\"choose\")));\n"
				 "int main(int argc, char **argv)\n"
				 "{\n"
				 "	void *(*volatile get)(size_t) = malloc;\n"
				 "	char *p = get(argc);\n"
				 "	puts(argv[0]);\n"
				 "	free(p);\n"
				 "	return chosen() + malloc(3) != NULL;\n"
				 "}\n";

/* How many stubs binutils finds that have another name here. */
static void check_plt(const char *name, const char *options)
{
	struct loaded loaded = {};
	char command[512], line[256], stub[200];
	unsigned long long vaddr;
	size_t count = 0;
	FILE *listing;

	fixture_compile(name, ".c", plt_source, options);
	load_names(&loaded, name);
	snprintf(command, sizeof(command), "cd %s && objdump -d %s | grep '@plt>:$'",
		 fixture_folder, name);
	listing = popen(command, "r");
	assert_non_null(listing);
	while (fgets(line, sizeof(line), listing)) {
		assert_int_equal(sscanf(line, "%llx <%199[^>]", &vaddr, stub), 2);
		/* binutils has only the address for what an ifunc chooses; so has a stripped file.
		 */
		if (!strncmp(stub, "*ABS*", 5) && strcmp(name, "bare"))
			strcpy(stub, "chosen@plt");
		assert_string_equal(name_at(&loaded, vaddr), stub);
		assert_string_equal(name_at(&loaded, vaddr + 6), stub);
		count++;
	}
	assert_int_equal(pclose(listing), 0);
	assert_true(count >= 4);
	unload(&loaded);
}

static void test_plt(void **state)
{
	check_plt("lazy", "-O1 -Wl,-z,lazy -fcf-protection=none");
	check_plt("lazy_ibt", "-O1 -Wl,-z,lazy -fcf-protection -Wl,-z,ibtplt");
	check_plt("now_ibt", "-O1 -Wl,-z,now -fcf-protection -Wl,-z,ibtplt");
	check_plt("fixed", "-O1 -no-pie -fno-pic -Wl,-z,lazy");
	check_plt("bare", "-O1 -s -Wl,-z,now");
}

/* What is for names only is not offered to those who place probes. */
static void test_names_only(void **state)
{
	struct loaded loaded = {}, plain = {};
	uint64_t vaddr;

	fixture_compile("labels", ".s",
			"	.text\n"
			"	.globl f\n"
			"	.type f,@function\n"
			"f:	.fill 16,1,0x90\n"
			"inner:	.fill 16,1,0x90\n"
			"	.size f,32\n"
			"label:	.fill 16,1,0x90\n"
			"	.data\n"
			"value:	.quad 1\n",
			"-shared -nostdlib");
	load_names(&loaded, "labels");
	load(&plain, "labels");
	vaddr = symtab_find(plain.symtab, "f")->start;
	assert_string_equal(name_at(&loaded, vaddr + 20), "f");
	assert_string_equal(name_at(&loaded, vaddr + 40), "label");
	assert_string_equal(name_at(&plain, vaddr + 40), "(none)");
	assert_null(symtab_find(plain.symtab, "label"));
	assert_null(symtab_find(loaded.symtab, "f"));
	unload(&loaded);
	unload(&plain);
}

static void test_debug_file(void **state)
{
	struct loaded stripped = {}, plain = {};
	struct image *debug;
	char command[512];
	uint64_t base;

	fixture_compile("whole", ".s", source, "-shared -nostdlib");
	snprintf(command, sizeof(command),
		 "cd %s && objcopy --only-keep-debug whole debug && strip -o bare.so whole",
		 fixture_folder);
	assert_int_equal(system(command), 0);
	load(&plain, "whole");
	base = symtab_find(plain.symtab, "global_f")->start;
	debug = fixture_open(fixture_path("debug"));
	stripped.image = fixture_open(fixture_path("bare.so"));
	assert_int_equal(symtab_load_names(stripped.image, &debug, 1, &stripped.symtab), 0);
	/* All rules hold, with the bounds of sections that have no bytes. */
	assert_string_equal(name_at(&stripped, base), "global_f");
	assert_string_equal(name_at(&stripped, base + 48), "outer");
	assert_string_equal(name_at(&stripped, base + 127), "last");
	assert_string_equal(name_at(&stripped, base + 128 + 64), "(none)");
	assert_true(symtab_bytes(stripped.symtab) > 0);
	unload(&stripped);
	unload(&plain);
	image_free(debug);
}

static void check_damaged_names(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;

	if (image_open(fd, "damaged", &image) || symtab_load_names(image, &image, 1, &symtab))
		return;
	for (uint64_t vaddr = 0; vaddr < 0x3000; vaddr += 8) {
		const struct symbol *symbol = symtab_lookup(symtab, vaddr);

		if (symbol)
			assert_true(symbol->start <= vaddr && strlen(symbol->name));
	}
}

static void test_damaged_names(void **state)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	size_t size;

	fixture_compile("plt", ".c", plt_source, "-O1 -Wl,-z,lazy");
	bytes = fixture_read(fixture_path("plt"), &size);
	fixture_damage(bytes, size, check_damaged_names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),	   cmocka_unit_test(test_stripped),
		cmocka_unit_test(test_versions),   cmocka_unit_test(test_ifunc),
		cmocka_unit_test(test_undefined),  cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_no_symbols), cmocka_unit_test(test_damage),
		cmocka_unit_test(test_plt),	   cmocka_unit_test(test_names_only),
		cmocka_unit_test(test_debug_file), cmocka_unit_test(test_damaged_names),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
