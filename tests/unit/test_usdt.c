/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* USDT probes: notes as <sys/sdt.h> writes them, and the forms of arguments. */
#include "elf_fixture.h"

#include <errno.h>

#include "elf/usdt.h"
#include "probe/usdt_args.h"

/* What the macros of <sys/sdt.h> make, for two providers; .stapsdt.base is as it was linked. */
static const char source[] =
	"#define NOTE(provider, name, semaphore, arguments) \\\n"
	"	__asm__ volatile(\"990: nop\\n.pushsection .note.stapsdt,\\\"\\\",@note\\n.balign "
	"4\\n\" \\\n"
	"	\".4byte 992f-991f,994f-993f,3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n\" "
	"\\\n"
	"	\"993: .8byte 990b,_.stapsdt.base,\" semaphore \"\\n.asciz \\\"\" provider "
	"\"\\\"\\n\" \\\n"
	"	\".asciz \\\"\" name \"\\\"\\n.asciz \\\"\" arguments \"\\\"\\n994: .balign "
	"4\\n.popsection\\n\")\n"
	"__asm__(\".pushsection "
	".stapsdt.base,\\\"aG\\\",\\\"progbits\\\",.stapsdt.base,comdat\\n\"\n"
	"	\".weak _.stapsdt.base\\n.hidden _.stapsdt.base\\n_.stapsdt.base: .space 1\\n\"\n"
	"	\".size _.stapsdt.base,1\\n.popsection\\n\");\n"
	"unsigned short counter __attribute__((section(\".probes\")));\n"
	"int first(void) { NOTE(\"otel_memory\", \"alloc\", \"counter\", \"8@%rdi 8@%rsi "
	"8@%rdx\"); return 0; }\n"
	"int other(void) { NOTE(\"someone\", \"alloc\", \"0\", \"8@%rdi\"); return 0; }\n"
	"int second(void) { NOTE(\"otel_memory\", \"free\", \"0\", \"\"); return 0; }\n"
	"int main(void) { return first() + other() + second(); }\n";

static void test_notes(void **state)
{
	struct usdt usdt;
	struct image *image;
	uint64_t offset;

	fixture_compile("noted", ".c", source, "-O1 -no-pie");
	image = fixture_open(fixture_path("noted"));
	assert_int_equal(usdt_load(image, "otel_memory", &usdt), 0);
	assert_int_equal(usdt.count, 2);
	assert_string_equal(usdt.entries[0].name, "alloc");
	assert_string_equal(usdt.entries[0].arguments, "8@%rdi 8@%rsi 8@%rdx");
	assert_int_equal(image_vaddr_to_offset(image, usdt.entries[0].vaddr, &offset), 0);
	assert_int_equal(image_vaddr_to_offset(image, usdt.entries[0].semaphore, &offset), 0);
	assert_string_equal(usdt.entries[1].name, "free");
	assert_string_equal(usdt.entries[1].arguments, "");
	assert_int_equal(usdt.entries[1].semaphore, 0);
	assert_true(usdt.entries[1].vaddr > usdt.entries[0].vaddr);
	usdt_fini(&usdt);
	assert_int_equal(usdt_load(image, "someone", &usdt), 0);
	assert_int_equal(usdt.count, 1);
	usdt_fini(&usdt);
	assert_int_equal(usdt_load(image, "nobody", &usdt), 0);
	assert_int_equal(usdt.count, 0);
	image_free(image);
}

static void load_damaged(int fd)
{
	struct image *image;
	struct usdt usdt;

	if (image_open(fd, "/nowhere/damaged", &image))
		return;
	assert_int_equal(usdt_load(image, "otel_memory", &usdt), 0);
	usdt_fini(&usdt);
	image_free(image);
}

static void test_damaged(void **state)
{
	uint8_t *bytes;
	size_t size;

	fixture_compile("damaged", ".c", source, "-O1 -s");
	bytes = fixture_read(fixture_path("damaged"), &size);
	fixture_damage(bytes, size, load_damaged);
	free(bytes);
}

static void test_registers(void **state)
{
	struct sampler_arg args[3];

	assert_int_equal(usdt_args_parse("8@%rax  -4@%r12d 1@%sil", args, 3), 0);
	assert_int_equal(args[0].kind, SAMPLER_ARG_REGISTER);
	assert_int_equal(args[0].base, 0);
	assert_int_equal(args[0].size, 8);
	assert_false(args[0].is_signed);
	assert_int_equal(args[1].base, 12);
	assert_int_equal(args[1].size, 4);
	assert_true(args[1].is_signed);
	assert_int_equal(args[2].base, 6);
	assert_int_equal(args[2].size, 1);
}

static void test_constants_and_memory(void **state)
{
	struct sampler_arg args[3];

	assert_int_equal(usdt_args_parse("-8@$-17 8@-0x10(%rbp,%r9,8) 2@(,%rcx,2)", args, 3), 0);
	assert_int_equal(args[0].kind, SAMPLER_ARG_CONSTANT);
	assert_int_equal(args[0].value, -17);
	assert_int_equal(args[1].kind, SAMPLER_ARG_MEMORY);
	assert_int_equal(args[1].value, -16);
	assert_int_equal(args[1].base, 5);
	assert_int_equal(args[1].index, 9);
	assert_int_equal(args[1].shift, 3);
	assert_int_equal(args[2].value, 0);
	assert_int_equal(args[2].base, SAMPLER_NO_REGISTER);
	assert_int_equal(args[2].index, 1);
	assert_int_equal(args[2].shift, 1);
	/* Those behind the wanted ones do not matter. */
	assert_int_equal(usdt_args_parse("8@(%rdi) 8@%xmm0", args, 1), 0);
	assert_int_equal(args[0].base, 7);
	assert_int_equal(args[0].index, SAMPLER_NO_REGISTER);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"%rax",
		"8@",
		"8@%",
		"8@%xmm0",
		"3@%rax",
		"8@foo(%rip)",
		"8@4(%rip)",
		"8@(%rax",
		"8@(%rax,)",
		"8@(%rax,%rbx,3)",
		"8@%rax,",
		"8@$",
		"8@$x",
		"8@%fs:4",
		"8@99999999999999999999(%rax)",
		"9223372036854775808@%rax",
		"8@1",
		"8@*%rax",
	};
	struct sampler_arg args[3];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(usdt_args_parse(texts[i], args, 1), -EINVAL);
	assert_int_equal(usdt_args_parse("", args, 1), -ENOENT);
	assert_int_equal(usdt_args_parse("8@%rax 8@%rbx ", args, 3), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notes),	  cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_registers), cmocka_unit_test(test_constants_and_memory),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("usdt", tests, fixture_setup, fixture_teardown);
}
