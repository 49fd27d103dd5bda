/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* cfi: every instruction of the machine, both tables, and tables that are broken. */
#include "elf_fixture.h"

#include <errno.h>
#include <time.h>

#include "elf/cfi.h"
#include "elf/symtab.h"

/* Functions of 16 one-byte instructions; the rules change behind each `at`. */
#define FUNC(name)                                                                                 \
	"	.globl " name "\n	.type " name ",@function\n	.balign 16\n" name         \
	": .cfi_startproc\n"
#define END(name) "	.fill 4,1,0x90\n	.cfi_endproc\n	.size " name ",.-" name "\n"
#define AT	  "	nop\n"
#define ESCAPE(s) "	.cfi_escape " s "\n"

static const char opcodes[] = "	.text\n"
	/* the plain ones, and remember/restore two deep, the CFA included */
	FUNC("plain") "	push %rbp\n	.cfi_def_cfa_offset 16\n	.cfi_offset 6,-16\n"
		      "	mov %rsp,%rbp\n	.cfi_def_cfa_register 6\n" AT "	.cfi_remember_state\n"
		      "	.cfi_def_cfa 7,8\n	.cfi_restore 6\n" AT "	.cfi_remember_state\n"
		      "	.cfi_def_cfa_offset 64\n" AT "	.cfi_restore_state\n" AT
		      "	.cfi_restore_state\n" AT END("plain") FUNC("advances") ESCAPE(
			      "0x02,1") ESCAPE("0x0e,16") ESCAPE("0x03,1,0") ESCAPE("0x0e,24")
			      ESCAPE("0x04,1,0,0,0") ESCAPE("0x0e,32") ESCAPE(
				      "0x1d,1,0,0,0,0,0,0,0") ESCAPE("0x0e,40") ESCAPE("0x41")
				      ESCAPE("0x0e,48") "	.fill 12,1,0x90\n" END("advances")
					      FUNC("offsets") AT ESCAPE("0x05,6,2")
						      AT ESCAPE("0x11,6,3") AT ESCAPE("0x2f,6,4")
							      AT ESCAPE("0x86,5")
								      AT ESCAPE("0x06,6")
									      AT END("offsets")
	/* sf: factors of -8 */
	FUNC("signed") AT ESCAPE("0x12,7,0x7e") AT ESCAPE("0x13,0x7d") AT ESCAPE("0x0d,6") AT END(
		"signed") FUNC("registers") AT ESCAPE("0x09,6,10") AT ESCAPE("0x08,6")
		AT ESCAPE("0x07,6") AT ESCAPE("0x14,6,2") AT ESCAPE("0xc6") AT ESCAPE("0x15,6,2")
			AT ESCAPE("0x09,6,6") AT END("registers") FUNC("ignored") AT ESCAPE(
				"0x00") ESCAPE("0x2d") ESCAPE("0x2e,0x85,0x01") ESCAPE("0x0e,16")
				AT END("ignored") FUNC("outermost") "	.cfi_undefined 16\n" AT END(
					"outermost") FUNC("ra_moved") AT ESCAPE("0x09,16,5")
					AT ESCAPE("0x90,1") AT ESCAPE("0x90,2") AT END("ra_moved")
	/* CFA = *(rbp - 8), rbp saved at rbp: gcc's realigned stack */
	FUNC("drap") AT ESCAPE("0x0f,3,0x76,0x78,0x06") ESCAPE("0x10,6,2,0x76,0")
		AT ESCAPE("0x0c,10,0") AT END("drap")
	/* *(rsp + 16) + 8, said in several ways; what is not such a sum; other registers */
	FUNC("expressions") AT ESCAPE("0x0f,5,0x77,16,0x06,0x23,8") AT ESCAPE(
		"0x0f,7,0x92,7,0x10,0x06,0x38,0x22,0x96") AT ESCAPE("0x0f,8,0x08,24,0x77,0,0x22,"
								    "0x94,8,0x96") AT ESCAPE("0x0f,"
											     "5,"
											     "0x77,"
											     "40,"
											     "0x38,"
											     "0x1c,"
											     "0x96")
		AT ESCAPE("0x0f,2,0x73,0") AT ESCAPE("0x0f,3,0x77,0,0x1f") AT ESCAPE(
			"0x0f,4,0x77,0,0x06,0x06") AT END("expressions")
			FUNC("bp_expressions") AT ESCAPE("0x10,6,2,0x23,0x10") AT ESCAPE(
				"0x10,6,2,0x77,0x08") AT ESCAPE("0x10,6,2,0x76,0x70")
				AT ESCAPE("0x16,6,3,0x76,0,0x06") AT ESCAPE(
					"0x16,6,2,0x76,"
					"0") AT ESCAPE("0x16,6,2,0x76,8") AT ESCAPE("0x10,6,1,0x96")
					AT END("bp_expressions") FUNC("plt") AT ESCAPE(
						"0x0f,11,0x77,8,0x80,0,0x3f,0x1a,0x3b,0x2a,"
						"0x33,0x24,0x22") AT ESCAPE("0x0f,11,0x77,"
									    "8,0x80,0,0x3f,"
									    "0x1a,0x3a,"
									    "0x2a,0x33,"
									    "0x24,0x22")
						AT ESCAPE("0x0f,11,0x77,8,0x80,0,0x3f,0x1a,"
							  "0x39,0x2a,0x33,0x24,0x22") AT END("plt")
							FUNC("large") AT ESCAPE(
								"0x0e,0xff,0xff,0xff,"
								"0xff,7") AT ESCAPE("0x0e,"
										    "0x80,"
										    "0x80,"
										    "0x80,"
										    "0x80,"
										    "8")
								AT ESCAPE("0x0e,0xff,0xff,"
									  "0xff,0xff,0xff,"
									  "0xff,0xff,0xff,"
									  "0xff,1") AT END("large")
	/* after an expression an offset alone has no effect */
	FUNC("after_expression") AT ESCAPE("0x0f,3,0x76,0x78,0x06") AT ESCAPE("0x0e,32")
		AT ESCAPE("0x0c,7,16") AT END("after_expression") FUNC(
			"signal") "	.cfi_signal_frame\n" ESCAPE("0x0f,4,0x77,0xa0,0x01,0x06")
			ESCAPE("0x10,16,3,0x77,0xa8,0x01") AT END("signal");

/* Each of these alone must go; what is around them must stay. */
static const char broken[] = "	.text\n" FUNC("good_first") AT
	"	.cfi_def_cfa_offset 16\n" END("good_first") FUNC("unknown_opcode") AT ESCAPE("0x26")
		AT END("unknown_opcode") FUNC("empty_restore") AT ESCAPE("0x0b") AT END(
			"empty_restore") FUNC("cut_expression") AT ESCAPE("0x0f,0x7f,0x77")
			AT END("cut_expression") FUNC("endless_leb") AT ESCAPE(
				"0x0e,0x80,0x80,0x80,0x80,0x80,0x80,0x80,0x80,0x80,0x80,0x80,0x80")
				AT END("endless_leb") FUNC("nested") AT
	"	.rept 65\n	.cfi_remember_state\n	.endr\n" AT END("nested") FUNC("far")
		AT ESCAPE("0x1d,0xff,0xff,0xff,0xff,0xff,0xff,0xff,0xff") AT END("far")
			FUNC("good_last") AT "	.cfi_def_cfa_offset 16\n" END("good_last");

static struct image *image;
static struct symtab *symtab;
static struct cfi *cfi;

static void unload(void)
{
	cfi_free(take_ptr(cfi));
	symtab_free(take_ptr(symtab));
	image_free(take_ptr(image));
}

static void load(const char *name)
{
	unload();
	image = fixture_open(fixture_path(name));
	assert_int_equal(cfi_load(image, &cfi), 0);
	symtab_load(image, &symtab);
}

static const struct cfi_function *function_at(uint64_t start)
{
	for (size_t i = 0; i < cfi_count(cfi); i++)
		if (cfi_get(cfi, i)->start == start)
			return cfi_get(cfi, i);
	return NULL;
}

static const char *rule_text(const struct unwind_rule *rule)
{
	static const char *const cfa[CFA_KINDS] = {"gap",   "unsupported", "end", "sp",	   "bp",
						   "*(bp)", "*(sp)",	   "plt", "signal"};
	static const char *const bp[BP_KINDS] = {"same", "*cfa", "*bp"};
	static char text[80];
	size_t n = sprintf(text, "%s", cfa[rule->cfa_kind]);

	if (rule->cfa_kind == CFA_UNSUPPORTED || rule->cfa_kind == CFA_END ||
	    rule->cfa_kind == CFA_SIGNAL)
		return text;
	n += sprintf(text + n, "%+d", rule->cfa_offset);
	if (rule->cfa_kind == CFA_DEREF_SP || rule->cfa_kind == CFA_PLT)
		n += sprintf(text + n, "%+d", rule->cfa_extra);
	n += sprintf(text + n, ", bp %s", bp[rule->bp_kind]);
	if (rule->bp_kind != BP_SAME)
		sprintf(text + n, "%+d", rule->bp_offset);
	return text;
}

/* The rules of a function, one after the other, each with the offset where it begins. */
static void check(const char *name, const char *expected)
{
	const struct symbol *symbol = symtab_find(symtab, name);
	const struct cfi_function *function;
	char text[1024] = "";
	struct cfi_rows rows = {};

	assert_non_null(symbol);
	function = function_at(symbol->start);
	assert_non_null(function);
	assert_int_equal(function->end - function->start, symbol->size);
	assert_int_equal(cfi_rows(cfi, function, &rows), 0);
	for (size_t i = 0; i < rows.count; i++)
		sprintf(text + strlen(text), "%s%d: %s", i ? "; " : "",
			(int)(rows.entries[i].start - symbol->start),
			rule_text(&rows.entries[i].rule));
	assert_string_equal(text, expected);
	cfi_rows_fini(&rows);
}

static void check_opcodes(void)
{
	check("plain", "0: sp+8, bp same; 1: sp+16, bp *cfa-16; 4: bp+16, bp *cfa-16; 5: sp+8, bp "
		       "same; 6: sp+64, bp same; 7: sp+8, bp same; 8: bp+16, bp *cfa-16");
	check("advances", "0: sp+8, bp same; 1: sp+16, bp same; 2: sp+24, bp same; 3: sp+32, bp "
			  "same; 4: sp+40, bp same; 5: sp+48, bp same");
	check("offsets", "0: sp+8, bp same; 1: sp+8, bp *cfa-16; 2: sp+8, bp *cfa-24; 3: sp+8, bp "
			 "*cfa+32; 4: sp+8, bp *cfa-40; 5: sp+8, bp same");
	check("signed",
	      "0: sp+8, bp same; 1: sp+16, bp same; 2: sp+24, bp same; 3: bp+24, bp same");
	check("registers", "0: sp+8, bp same; 1: unsupported; 2: sp+8, bp same; 4: unsupported; 5: "
			   "sp+8, bp same; 6: unsupported; 7: sp+8, bp same");
	check("ignored", "0: sp+8, bp same; 1: sp+16, bp same");
	check("outermost", "0: end");
	check("ra_moved", "0: sp+8, bp same; 1: unsupported; 2: sp+8, bp same; 3: unsupported");
	check("drap", "0: sp+8, bp same; 1: *(bp)-8, bp *bp+0; 2: unsupported");
	check("expressions", "0: sp+8, bp same; 1: *(sp)+16+8, bp same; 3: *(sp)+24+0, bp same; 4: "
			     "sp+32, bp same; 5: unsupported");
	check("bp_expressions",
	      "0: sp+8, bp same; 1: sp+8, bp *cfa+16; 2: sp+8, bp *cfa+0; 3: sp+8, bp *bp-16; 4: "
	      "sp+8, bp *bp+0; 5: sp+8, bp same; 6: unsupported; 7: sp+8, bp *cfa+0");
	check("plt",
	      "0: sp+8, bp same; 1: plt+8+11, bp same; 2: plt+8+10, bp same; 3: unsupported");
	check("large", "0: sp+8, bp same; 1: sp+2147483647, bp same; 2: unsupported");
	check("after_expression", "0: sp+8, bp same; 1: *(bp)-8, bp same; 3: sp+16, bp same");
	check("signal", "0: signal");
}

static void test_opcodes(void **state)
{
	fixture_compile("opcodes", ".s", opcodes, "-shared -nostdlib -Wl,--build-id=none");
	load("opcodes");
	assert_int_equal(cfi_dropped(cfi), 0);
	check_opcodes();
}

/* The same instructions in the other table, also compressed. */
static void test_debug_frame(void **state)
{
	char *source _cleanup_free_ = malloc(sizeof(opcodes) + 64);

	sprintf(source, "	.cfi_sections .debug_frame\n%s", opcodes);
	fixture_compile("debug", ".s", source, "-shared -nostdlib");
	load("debug");
	assert_true(cfi_get(cfi, 0)->from_debug);
	check_opcodes();
	fixture_compile("packed", ".s", source,
			"-shared -nostdlib -Wl,--compress-debug-sections=zlib");
	load("packed");
	check_opcodes();
}

static void test_broken(void **state)
{
	struct cfi_rows rows = {};
	size_t bad = 0;

	fixture_compile("broken", ".s", broken, "-shared -nostdlib 2>/dev/null");
	load("broken");
	check("good_first", "0: sp+8, bp same; 1: sp+16, bp same");
	check("good_last", "0: sp+8, bp same; 1: sp+16, bp same");
	for (size_t i = 0; i < cfi_count(cfi); i++) {
		int err = cfi_rows(cfi, cfi_get(cfi, i), &rows);

		assert_true(!err || err == -EBADMSG);
		assert_int_equal(err && rows.count, 0);
		bad += err != 0;
	}
	assert_int_equal(bad, 6);
	cfi_rows_fini(&rows);
}

/* Sections taken away: then the program header leads to the table. */
static void test_no_sections(void **state)
{
	size_t size, count;
	uint8_t *bytes;
	int fd;

	fixture_compile("header", ".s", opcodes, "-shared -nostdlib -Wl,--eh-frame-hdr");
	load("header");
	count = cfi_count(cfi);
	bytes = fixture_read(fixture_path("header"), &size);
	memset(bytes + 0x28, 0, 8); /* e_shoff */
	memset(bytes + 0x3c, 0, 4); /* e_shnum, e_shstrndx */
	unload();
	fd = fixture_memfd(bytes, size);
	free(bytes);
	assert_int_equal(image_open(fd, "no sections", &image), 0);
	assert_int_equal(cfi_load(image, &cfi), 0);
	assert_int_equal(cfi_count(cfi), count);
}

/* The section alone: static programs have no PT_GNU_EH_FRAME. */
static void test_no_header(void **state)
{
	fixture_compile("section", ".s", opcodes, "-shared -nostdlib -Wl,--no-eh-frame-hdr");
	load("section");
	check_opcodes();
}

/* Hand-written tables: CIE versions, augmentations and encodings. */
#define CIE(version, letters, data)                                                                \
	"	.balign 8\n1:	.long 3f-2f\n2:	.long 0\n	.byte " version                    \
	"\n	.asciz " letters "\n" data "	.byte 0x0c,7,8,0x90,1\n	.balign 8\n3:\n"
#define FDE(data)                                                                                  \
	"4:	.long 6f-5f\n5:	.long 5b-1b\n" data "	.byte 0x41,0x0e,16\n	.balign 8\n6:\n"

static const char handmade[] =
	"	.text\n	.fill 16,1,0x90\n"
	"	.irp n,0,1,2,3,4,5,6,7,8,9\n	.globl f\\n\n	.type f\\n,@function\nf\\n: .fill "
	"16,1,0x90\n"
	"	.size f\\n,16\n	.endr\n"
	"	.section .got,\"aw\",@progbits\n	.quad 0\n"
	"	.section .eh_frame,\"a\",@progbits\n"
	/* no augmentation: absolute */
	CIE("1", "\"\"", "	.byte 1,0x78,16\n") FDE("	.quad f0,16\n")
		CIE("3", "\"zR\"", "	.byte 1,0x78,16,1,0x1b\n")
			FDE("	.long f1-.,16\n	.byte 0\n")
				CIE("4", "\"zR\"", "	.byte 8,0,1,0x78,16,1,0x1c\n")
					FDE("	.quad f2-.,16\n	.byte 0\n")
	/* a personality, a language-specific pointer, a letter nobody knows, a longer FDE */
	CIE("1", "\"zPLR\"", "	.byte 1,0x78,16,7,0x9b,1,2,3,4,0x1b,0x1b\n")
		FDE("	.long f3-.,16\n	.byte 4,1,2,3,4\n")
			CIE("1", "\"zRB!\"", "	.byte 1,0x78,16,3,0x1b,9,9\n")
				FDE("	.long f4-.,16\n	.byte 0\n")
					CIE("1", "\"eh\"", "	.quad 0\n	.byte 1,0x78,16\n")
						FDE("	.quad f5,16\n")
	/* datarel: from .got */
	CIE("1", "\"zR\"", "	.byte 1,0x78,16,1,0x3c\n")
		FDE("	.quad f6-0x500000,16\n	.byte 0\n")
	/* a terminator in the middle, then 64-bit lengths */
	"	.long 0\n"
	"7:	.long 0xffffffff\n	.quad 9f-8f\n8:	.long 0\n	.byte 1,0\n	.byte "
	"1,0x78,16,0x0c,7,8,0x90,"
	"1\n	.balign 8\n9:\n"
	"	.long 0xffffffff\n	.quad 9f-8f\n8:	.long 8b-7b\n	.quad f7,16\n	.byte "
	"0x41,0x0e,16\n"
	"	.balign 8\n9:\n"
	/* ids of 8 bytes */
	"7:	.long 0xffffffff\n	.quad 9f-8f\n8:	.quad 0\n	.byte 1,0\n	.byte "
	"1,0x78,16,0x0c,7,8,0x90,"
	"1\n	.balign 8\n9:\n"
	"	.long 0xffffffff\n	.quad 9f-8f\n8:	.quad 8b-7b\n	.quad f8,16\n	.byte "
	"0x41,0x0e,16\n"
	"	.balign 8\n9:\n"
	/* removed by the linker; set_loc */
	CIE("1", "\"\"", "	.byte 1,0x78,16\n")
		FDE("	.quad 0,16\n") "4:	.long 6f-5f\n5:	.long 5b-1b\n	.quad f9,16\n	"
				       ".byte 0x01\n	.quad f9+5\n	.byte 0x0e,16\n"
				       "	.balign 8\n6:\n"
	/* malformed: an unknown version, a CIE that is none, a start that is read indirectly */
	CIE("9", "\"\"", "	.byte 1,0x78,16\n")
		FDE("	.quad f0,16\n") "	.long 16\n	.long 12\n	.quad f0,16\n" CIE(
			"1", "\"zR\"", "	.byte 1,0x78,16,1,0x9b\n")
			FDE("	.long f1-.,16\n	.byte 0\n")
	/* a record that is longer than the section */
	"	.long 0x7fffffff\n	.long 0\n";

static void test_handmade(void **state)
{
	static const char *const names[] = {"f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"};

	fixture_compile("handmade", ".s", handmade,
			"-c && mv handmade handmade.o && ld -o handmade handmade.o -Ttext=0x401000 "
			"--section-start=.got=0x500000 --no-eh-frame-hdr "
			"--no-ld-generated-unwind-info -e 0 2>/dev/null");
	load("handmade");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		check(names[i], "0: sp+8, bp same; 1: sp+16, bp same");
	check("f9", "0: sp+8, bp same; 5: sp+16, bp same");
	assert_int_equal(cfi_count(cfi), 10);
	assert_int_equal(cfi_dropped(cfi), 4);
}

static void check_damaged(int fd)
{
	struct image *damaged CLEANUP(image) = NULL;
	struct cfi *found CLEANUP(cfi) = NULL;
	struct cfi_rows rows = {};

	if (image_open(fd, "damaged", &damaged) || cfi_load(damaged, &found))
		return;
	for (size_t i = 0; i < cfi_count(found); i++)
		cfi_rows(found, cfi_get(found, i), &rows);
	cfi_rows_fini(&rows);
}

static void test_damage(void **state)
{
	uint8_t *bytes;
	size_t size;

	bytes = fixture_read(fixture_path("header"), &size);
	fixture_damage(bytes, size, check_damaged);
	free(bytes);
	bytes = fixture_read(fixture_path("packed"), &size);
	fixture_damage(bytes, size, check_damaged);
	free(bytes);
}

/* Two megabytes of records whose CIE is as long as a file allows: seconds would be quadratic. */
static void test_hostile(void **state)
{
	static const char source[] = "	.text\nf: .fill 4096,1,0x90\n"
				     "	.section .eh_frame,\"a\",@progbits\n"
				     "1:	.long 3f-2f\n2:	.long 0\n	.byte "
				     "1,0,1,0x78,16\n	.fill 1000000,1,0\n	.balign 8\n3:\n"
				     "	.rept 40000\n4:	.long 6f-5f\n5:	.long 5b-1b\n	.quad "
				     "f,16\n	.quad 0\n6:\n	.endr\n"
				     /* and FDEs whose CIE would be the FDE before */
				     "	.rept 20000\n4:	.long 6f-5f\n5:	.long 28\n	.quad "
				     "f,16\n	.quad 0\n6:\n	.endr\n";
	clock_t start;

	fixture_compile("hostile", ".s", source,
			"-c && mv hostile hostile.o && ld -o hostile hostile.o --no-eh-frame-hdr "
			"-e 0 2>/dev/null");
	unload();
	image = fixture_open(fixture_path("hostile"));
	start = clock();
	cfi_load(image, &cfi);
	assert_true(clock() - start < CLOCKS_PER_SEC);
}

static void test_none(void **state)
{
	unload();
	fixture_compile("none", ".c", "int main(void) { return 0; }",
			"-nostdlib -shared -fno-asynchronous-unwind-tables");
	image = fixture_open(fixture_path("none"));
	assert_int_equal(cfi_load(image, &cfi), -ENOENT);
}

static int teardown(void **state)
{
	unload();
	return fixture_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_opcodes),	  cmocka_unit_test(test_debug_frame),
		cmocka_unit_test(test_broken),	  cmocka_unit_test(test_no_sections),
		cmocka_unit_test(test_no_header), cmocka_unit_test(test_handmade),
		cmocka_unit_test(test_damage),	  cmocka_unit_test(test_none),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests_name("cfi", tests, fixture_setup, teardown);
}
