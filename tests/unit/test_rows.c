/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* rows: tables of whole images, full and for call sites. */
#include "elf_fixture.h"

#include <elf.h>
#include <errno.h>

#include "elf/callsites.h"
#include "elf/code.h"
#include "elf/symtab.h"
#include "failing_malloc.h"
#include "unwind/rows.h"

static struct image *image;
static struct symtab *symtab;
static struct unwind_rows *rows; /* for call sites */
static struct unwind_rows *all;

static void unload(void)
{
	unwind_rows_free(take_ptr(rows));
	unwind_rows_free(take_ptr(all));
	symtab_free(take_ptr(symtab));
	image_free(take_ptr(image));
}

static void load(const char *path)
{
	unload();
	image = fixture_open(path);
	symtab_load(image, &symtab);
	assert_int_equal(unwind_rows_build(image, symtab, false, &rows), 0);
	assert_int_equal(unwind_rows_build(image, symtab, true, &all), 0);
}

static uint64_t offset_of(const char *name)
{
	const struct symbol *symbol = symtab_find(symtab, name);
	uint64_t offset;

	assert_non_null(symbol);
	assert_int_equal(image_vaddr_to_offset(image, symbol->start, &offset), 0);
	return offset;
}

static void check_rule(uint64_t offset, enum unwind_cfa kind, int cfa_offset)
{
	struct unwind_rule rule = unwind_rows_lookup(all, offset);

	assert_int_equal(rule.cfa_kind, kind);
	assert_int_equal(rule.cfa_offset, cfa_offset);
}

/* Both tables answer every call site alike, are sorted, and neighbours differ. */
static void check_tables(void)
{
	const struct unwind_rows *const both[] = {rows, all};
	struct callsites callsites;
	struct code code;

	assert_int_equal(code_load(image, &code), 0);
	assert_int_equal(callsites_scan(&code, &callsites), 0);
	for (size_t i = 0; i < callsites.count; i++) {
		struct unwind_rule a = unwind_rows_lookup(rows, callsites.lookups[i]);
		struct unwind_rule b = unwind_rows_lookup(all, callsites.lookups[i]);

		assert_memory_equal(&a, &b, sizeof(a));
		assert_true(!i || callsites.lookups[i] > callsites.lookups[i - 1]);
	}
	for (size_t t = 0; t < ARRAY_SIZE(both); t++) {
		for (size_t i = 1; i < both[t]->count; i++) {
			const struct rule_row *row = &both[t]->entries[i];

			assert_true(row->offset > row[-1].offset);
			assert_memory_not_equal(&row->rule, &row[-1].rule, sizeof(row->rule));
		}
	}
	callsites_fini(&callsites);
}

#define FUNC(name)                                                                                 \
	"	.globl " name "\n	.type " name ",@function\n" name ": .cfi_startproc\n"
#define END(name) "	.cfi_endproc\n	.size " name ",.-" name "\n"

static const char layout[] = "	.text\n	.balign 64\n" FUNC(
	"first") "	push %rbx\n	.cfi_adjust_cfa_offset 8\n	call out\n"
		 "	pop %rbx\n	.cfi_adjust_cfa_offset -8\n	ret\n" END("first")
	/* padding, a gap, and a gap with a call in it */
	"	.balign 16\n" FUNC(
		"second") "	sub $24,%rsp\n	.cfi_adjust_cfa_offset 24\n	call out\n" END("se"
												"co"
												"n"
												"d")
		FUNC("third") "	call out\n	ret\n" END(
			"third") "	.globl hole\nhole:	.fill 100,1,0x90\n	call "
				 "out\n" FUNC(
					 "restorer") "	.cfi_signal_frame\n	"
						     ".cfi_escape 0x0f,4,0x77,0xa0,0x01,0x06\n"
						     "	.cfi_escape "
						     "0x10,16,3,0x77,0xa8,0x01\n	mov "
						     "$15,%eax\n	syscall\n" END("restorer")
							     FUNC("out") "	ret\n" END("out") FUNC(
								     "outermost") "	.cfi_"
										  "undefined "
										  "16\n	"
										  "call out\n	"
										  "hlt\n" END(
											  "outerm"
											  "ost")
											  FUNC("r"
											       "e"
											       "s"
											       "t") "	.fill 1000,1,0x90\n" END("rest");

static void test_layout(void **state)
{
	uint64_t first, second, third;

	fixture_compile(
		"layout", ".s", layout,
		"-shared -nostdlib -Wl,-Ttext-segment=0x7000000 -Wl,-z,max-page-size=0x10000");
	load(fixture_path("layout"));
	check_tables();
	first = offset_of("first");
	assert_int_not_equal(symtab_find(symtab, "first")->start, first);
	check_rule(first, CFA_SP, 8);
	check_rule(first + 1, CFA_SP, 16);
	check_rule(first + 5, CFA_SP, 16);
	check_rule(first + 6, CFA_SP, 16);
	check_rule(first + 7, CFA_SP, 8);
	/* A call that does not return: the last byte belongs to its own function. */
	second = offset_of("second");
	third = offset_of("third");
	check_rule(third - 1, CFA_SP, 32);
	check_rule(third, CFA_SP, 8);
	check_rule(third + 6, CFA_GAP, 0);
	check_rule(third + 6 + 100 + 3, CFA_GAP, 0);
	check_rule(offset_of("restorer") - 2, CFA_GAP, 0);
	check_rule(offset_of("restorer") - 1, CFA_SIGNAL, 0);
	check_rule(offset_of("restorer"), CFA_SIGNAL, 0);
	check_rule(offset_of("outermost") + 4, CFA_END, 0);
	check_rule(offset_of("rest"), CFA_SP, 8);
	check_rule(offset_of("rest") + 1000, CFA_GAP, 0);
	check_rule(second + 10000, CFA_GAP, 0);
	check_rule(0, CFA_GAP, 0);
	check_rule(UINT64_MAX, CFA_GAP, 0);
	/* Returned to, never called from: kept all the same. */
	assert_int_equal(unwind_rows_lookup(rows, offset_of("restorer") - 1).cfa_kind, CFA_SIGNAL);
	assert_true(rows->count < all->count);
}

/* FDEs over each other. */
static const char overlaps[] = "	.text\n	.balign 64\n	.globl base\n	.type "
			       "base,@function\nbase:	.fill 256,1,0x90\n"
			       "	.size base,256\n"
			       "	.section .eh_frame,\"a\",@progbits\n"
			       "1:	.long 3f-2f\n2:	.long 0\n	.byte "
			       "1,0,1,0x78,16,0x0c,7,8,0x90,1\n	.balign 8\n3:\n"
			       "	.macro fde start,size,cfa\n	.long 24\n4:	.long "
			       "4b-1b\n	.quad \\start,\\size\n"
			       "	.byte 0x0e,\\cfa,0,0\n	.endm\n"
			       "	fde base+128,64,48\n"
			       "	fde base,160,16\n"   /* reaches into the one before */
			       "	fde base+32,32,24\n" /* inside */
			       "	fde base+32,64,32\n" /* of two with one start, the first */
			       "	fde base+224,1000000,64\n"; /* past the end of the code */

static void test_overlaps(void **state)
{
	static const int expected[] = {16, 24, 0, 0, 48, 48, 0, 64};
	uint64_t base;

	fixture_compile("overlaps", ".s", overlaps,
			"-c && mv overlaps overlaps.o && ld -o overlaps overlaps.o -e base "
			"--no-eh-frame-hdr --no-ld-generated-unwind-info 2>/dev/null");
	load(fixture_path("overlaps"));
	base = offset_of("base");
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		check_rule(base + 32 * i, expected[i] ? CFA_SP : CFA_GAP, expected[i]);
}

static const char program[] =
	"#include <alloca.h>\n#include <stdlib.h>\n"
	"void __attribute__((noinline)) use(void *p) { __asm__ volatile(\"\" :: \"r\"(p) : "
	"\"memory\"); }\n"
	"void __attribute__((noinline)) with_alloca(int n) { use(alloca(n)); }\n"
	"void __attribute__((noinline,force_align_arg_pointer)) aligned(int n) {\n"
	"	double x[8] __attribute__((aligned(64))); use(alloca(n)); use(x); use(&n); }\n"
	"void __attribute__((noinline)) large(void) { char b[70000]; use(b); use(b + 1); }\n"
	"void __attribute__((noinline)) ends(int n) { use(&n); abort(); }\n"
	"int main(int c, char **v) { with_alloca(c); aligned(c); large(); if (c > 9) ends(c); "
	"return 0; }\n";

/* Whether a call of a function has such a rule. */
static bool has_rule(const char *name, enum unwind_cfa kind, enum unwind_bp bp_kind,
		     int cfa_offset_min)
{
	uint64_t start = offset_of(name), end = start + symtab_find(symtab, name)->size;
	struct callsites callsites;
	bool found = false;
	struct code code;

	assert_int_equal(code_load(image, &code), 0);
	assert_int_equal(callsites_scan(&code, &callsites), 0);
	for (size_t i = 0; i < callsites.count; i++) {
		struct unwind_rule rule = unwind_rows_lookup(rows, callsites.lookups[i]);

		found |= callsites.lookups[i] >= start && callsites.lookups[i] < end &&
			 rule.cfa_kind == kind && rule.bp_kind == bp_kind &&
			 rule.cfa_offset >= cfa_offset_min;
	}
	callsites_fini(&callsites);
	return found;
}

static void test_programs(void **state)
{
	static const char *const options[] = {"-O2 -pie -fPIE", "-O2 -no-pie", "-O2 -static",
					      "-O2 -static-pie -fPIE", "-O2 -mstackrealign"};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		fixture_compile("program", ".c", program, options[i]);
		load(fixture_path("program"));
		check_tables();
		assert_int_equal(all->dropped_fdes, 0);
		assert_true(has_rule("with_alloca", CFA_BP, BP_CFA, 16));
		assert_true(has_rule("aligned", CFA_DEREF_BP, BP_DEREF_BP, -128));
		assert_true(has_rule("_start", CFA_END, BP_SAME, 0));
		assert_true(has_rule("large", CFA_SP, BP_SAME, 70000) ||
			    has_rule("large", CFA_BP, BP_CFA, 16));
	}
}

/* A table of a real library: small for call sites, and with the signal restorer. */
static void test_libc(void **state)
{
	bool signal = false, end = false;

	if (access("/usr/lib/x86_64-linux-gnu/libc.so.6", R_OK))
		skip();
	load("/usr/lib/x86_64-linux-gnu/libc.so.6");
	check_tables();
	for (size_t i = 0; i < rows->count; i++) {
		signal |= rows->entries[i].rule.cfa_kind == CFA_SIGNAL;
		end |= rows->entries[i].rule.cfa_kind == CFA_END;
	}
	assert_true(signal);
	assert_true(end);
	assert_true(rows->count > 1000 && rows->count * 5 < all->count);
	assert_int_equal(rows->dropped_fdes, 0);
}

static void test_nothing(void **state)
{
	struct unwind_rows *none = NULL;

	unload();
	fixture_compile("data", ".c", "int x = 1;", "-shared -nostdlib -Wl,-z,separate-code");
	image = fixture_open(fixture_path("data"));
	assert_int_equal(unwind_rows_build(image, NULL, true, &none), -ENOENT);
	assert_null(none);
	/* Code, but no call in it: a table of one row, as none is empty. */
	fixture_compile("leaf", ".c", "int f(int n) { return n + 1; }", "-O2 -shared -nostdlib");
	load(fixture_path("leaf"));
	assert_int_equal(rows->count, 1);
	assert_int_equal(rows->entries[0].rule.cfa_kind, CFA_GAP);
}

/* Code past 4 GiB of a file has no place in a row. */
static void test_too_large(void **state)
{
	struct {
		Elf64_Ehdr ehdr;
		Elf64_Phdr phdr;
	} file = {
		.ehdr =
			{
				.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					    ELFDATA2LSB, EV_CURRENT},
				.e_type = ET_DYN,
				.e_machine = EM_X86_64,
				.e_version = EV_CURRENT,
				.e_phoff = sizeof(Elf64_Ehdr),
				.e_ehsize = sizeof(Elf64_Ehdr),
				.e_phentsize = sizeof(Elf64_Phdr),
				.e_phnum = 1,
			},
		.phdr =
			{
				.p_type = PT_LOAD,
				.p_flags = PF_R | PF_X,
				.p_offset = 5ull << 30,
				.p_vaddr = 5ull << 30,
				.p_filesz = 4096,
				.p_memsz = 4096,
			},
	};
	int fd = fixture_memfd((const uint8_t *)&file, sizeof(file));
	struct unwind_rows *none = NULL;

	unload();
	assert_int_equal(ftruncate(fd, (5ll << 30) + 4096), 0);
	assert_int_equal(image_open(fd, "large", &image), 0);
	assert_int_equal(unwind_rows_build(image, NULL, false, &none), -E2BIG);
}

static void test_no_memory(void **state)
{
	static const char *const files[] = {"layout", "program"};

	if (!FAILING_MALLOC_WORKS)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int err = -ENOMEM;

		unload();
		image = fixture_open(fixture_path(files[i]));
		symtab_load(image, &symtab);
		for (long n = 1; err; n++) {
			struct unwind_rows *built CLEANUP(unwind_rows) = NULL;

			failing_malloc_countdown = n;
			err = unwind_rows_build(image, symtab, false, &built);
			if (failing_malloc_countdown) {
				/* It was never reached: this was the last one. */
				failing_malloc_countdown = 0;
				assert_int_equal(err, 0);
				break;
			}
			/* libelf may fail for want of memory, or do without. */
			assert_true(!err || err == -ENOMEM || err == -ENOENT || err == -ENOEXEC);
			err = -ENOMEM;
		}
	}
}

static int teardown(void **state)
{
	unload();
	return fixture_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),	  cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_programs),  cmocka_unit_test(test_libc),
		cmocka_unit_test(test_nothing),	  cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("rows", tests, fixture_setup, teardown);
}
