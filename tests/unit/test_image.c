/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* image: identity, segments and bytes of good and of broken ELF files. */
#include "elf_fixture.h"

#include <errno.h>
#include <gelf.h>

static const char program[] = "int global = 42;\n"
			      "int main(void) { return global; }\n";

static void test_program(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	uint64_t vaddr, offset;
	const uint8_t *bytes;
	size_t size;

	fixture_compile("pie", ".c", program, "-pie -fPIE -Wl,--build-id=0xdeadbeef0123");
	image = fixture_open(fixture_path("pie"));
	assert_string_equal(image_path(image), fixture_path("pie"));
	assert_string_equal(image_build_id(image), "deadbeef0123");
	assert_string_equal(image_interpreter(image), "/lib64/ld-linux-x86-64.so.2");
	assert_true(image_is_executable(image));
	assert_int_equal(image_offset_to_vaddr(image, 0, &vaddr), 0);
	assert_int_equal(vaddr, 0);
	assert_int_equal(image_vaddr_to_offset(image, 0, &offset), 0);
	assert_int_equal(offset, 0);
	bytes = image_bytes(image, 0, 4, &size);
	assert_non_null(bytes);
	assert_int_equal(size, 4);
	assert_memory_equal(bytes, ELFMAG, SELFMAG);
	assert_int_equal(image_vaddr_to_offset(image, 1ull << 40, &offset), -ERANGE);
	assert_int_equal(image_offset_to_vaddr(image, 1ull << 40, &vaddr), -ERANGE);
	assert_null(image_bytes(image, UINT64_MAX, 1, &size));
}

static void test_fixed_address(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	uint64_t vaddr, offset;

	fixture_compile("fixed", ".c", program, "-no-pie -static -Wl,--build-id=none");
	image = fixture_open(fixture_path("fixed"));
	assert_string_equal(image_build_id(image), "");
	assert_null(image_interpreter(image));
	assert_true(image_is_executable(image));
	assert_int_equal(image_offset_to_vaddr(image, 16, &vaddr), 0);
	assert_int_equal(vaddr, 0x400010);
	assert_int_equal(image_vaddr_to_offset(image, 0x400010, &offset), 0);
	assert_int_equal(offset, 16);
}

static void test_library(void **state)
{
	struct image *image CLEANUP(image) = NULL;

	fixture_compile("lib", ".c", "int f(void) { return 1; }", "-shared -fPIC");
	image = fixture_open(fixture_path("lib"));
	assert_false(image_is_executable(image));
	assert_null(image_interpreter(image));
}

/* libc.so.6 can be run, yet it is a library. */
static void test_library_with_interpreter(void **state)
{
	struct image *image CLEANUP(image) = NULL;

	fixture_compile("runnable", ".c",
			"const char interp[] __attribute__((section(\".interp\"))) = \"/ld.so\";\n"
			"int f(void) { return 1; }",
			"-shared -fPIC -Wl,-soname,runnable.so");
	image = fixture_open(fixture_path("runnable"));
	assert_string_equal(image_interpreter(image), "/ld.so");
	assert_false(image_is_executable(image));
}

/* What the kernel maps of the code segment gives the bias, however the linker has laid it out. */
static void check_bias(const char *name, const char *options)
{
	const uint64_t bias = 0x55550000000, page = 4096;
	struct image *image CLEANUP(image) = NULL;
	uint64_t offset, found;
	GElf_Phdr phdr = {};

	fixture_compile(name, ".c", program, options);
	image = fixture_open(fixture_path(name));
	for (int i = 0; phdr.p_type != PT_LOAD || !(phdr.p_flags & PF_X); i++)
		assert_non_null(gelf_getphdr(image_elf(image), i, &phdr));
	offset = phdr.p_offset & -page;
	assert_int_equal(image_bias(image, bias + (phdr.p_vaddr & -page), offset, &found), 0);
	assert_int_equal(found, bias);
	assert_int_equal(image_bias(image, 0, phdr.p_offset + phdr.p_filesz, &found), -ERANGE);
	assert_int_equal(image_bias(image, 0, UINT64_MAX, &found), -ERANGE);
}

static void test_bias(void **state)
{
	check_bias("bias_pie", "-pie -fPIE");
	check_bias("bias_fixed", "-no-pie");
	check_bias("bias_whole", "-pie -fPIE -Wl,-z,noseparate-code");
	/* The code's first page is also that of what can only be read. */
	check_bias("bias_lld", "-pie -fPIE -fuse-ld=lld");
	check_bias("bias_lld_fixed", "-no-pie -fuse-ld=lld");
}

/* Every read of a large segment gives the file's bytes, whatever its size and alignment. */
static void test_bytes(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	uint8_t *whole _cleanup_free_ = NULL;
	size_t whole_size, size;

	fixture_compile(
		"large", ".c",
		"const unsigned int filler[100000] = {1, 2, 3};\nint main(void) { return 0; }",
		"-no-pie -static");
	image = fixture_open(fixture_path("large"));
	whole = fixture_read(fixture_path("large"), &whole_size);
	for (uint64_t offset = 1; offset < whole_size; offset += 4099) {
		size_t wanted = offset % 3 ? 4096 : 70000;
		const uint8_t *bytes;
		uint64_t vaddr;

		if (image_offset_to_vaddr(image, offset, &vaddr))
			continue;
		bytes = image_bytes(image, vaddr, wanted, &size);
		assert_non_null(bytes);
		assert_in_range(size, 1, wanted);
		assert_memory_equal(bytes, whole + offset, size);
	}
}

static int open_bytes(const void *bytes, size_t size)
{
	struct image *image CLEANUP(image) = NULL;

	return image_open(fixture_memfd(bytes, size), "bytes", &image);
}

static void test_not_elf(void **state)
{
	Elf64_Ehdr ehdr = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			    EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_ehsize = sizeof(ehdr),
	};
	struct image *image = NULL;

	assert_int_equal(open_bytes("", 0), -ENOEXEC);
	assert_int_equal(open_bytes("#!/bin/sh\n", 10), -ENOEXEC);
	assert_int_equal(open_bytes(&ehdr, sizeof(ehdr)), 0);
	assert_int_equal(open_bytes(&ehdr, sizeof(ehdr) - 1), -ENOEXEC);
	ehdr.e_machine = EM_AARCH64;
	assert_int_equal(open_bytes(&ehdr, sizeof(ehdr)), -ENOEXEC);
	ehdr.e_machine = EM_X86_64;
	ehdr.e_type = ET_CORE;
	assert_int_equal(open_bytes(&ehdr, sizeof(ehdr)), -ENOEXEC);
	ehdr.e_type = ET_DYN;
	ehdr.e_ident[EI_CLASS] = ELFCLASS32;
	assert_int_equal(open_bytes(&ehdr, sizeof(ehdr)), -ENOEXEC);
	assert_int_equal(image_open(open("/tmp", O_RDONLY | O_CLOEXEC), "/tmp", &image), -ENOEXEC);
	assert_int_equal(image_open(open("/dev/zero", O_RDONLY | O_CLOEXEC), "zero", &image),
			 -ENOEXEC);
	assert_int_equal(image_open(-1, "closed", &image), -EBADF);
	assert_null(image);
}

/* Of a file whose program headers follow it. */
static Elf64_Ehdr header_of(Elf64_Half phnum)
{
	return (Elf64_Ehdr){
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			    EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phoff = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = phnum,
	};
}

/* Segments that wrap around or lie past the end of the file cover nothing. */
static void test_hostile_segments(void **state)
{
	struct {
		Elf64_Ehdr ehdr;
		Elf64_Phdr phdrs[4];
	} file = {
		.ehdr = header_of(4),
		.phdrs =
			{
				{.p_type = PT_LOAD, .p_vaddr = UINT64_MAX - 3, .p_filesz = 64},
				{.p_type = PT_LOAD, .p_offset = 1 << 20, .p_filesz = UINT64_MAX},
				{.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_filesz = UINT64_MAX},
				{.p_type = PT_NOTE, .p_filesz = UINT64_MAX},
			},
	};
	struct image *image CLEANUP(image) = NULL;
	uint64_t vaddr;
	size_t size;

	assert_int_equal(image_open(fixture_memfd((uint8_t *)&file, sizeof(file)), "", &image), 0);
	assert_int_equal(image_offset_to_vaddr(image, 8, &vaddr), 0);
	assert_int_equal(vaddr, 0x1008);
	assert_int_equal(image_offset_to_vaddr(image, sizeof(file), &vaddr), -ERANGE);
	assert_null(image_bytes(image, UINT64_MAX - 1, 1, &size));
	assert_non_null(image_bytes(image, 0x1000, SIZE_MAX, &size));
	assert_int_equal(size, sizeof(file));
	assert_string_equal(image_build_id(image), "");
}

/* More headers than any program has would make the loader read as many parts of the file. */
static void test_many_headers(void **state)
{
	struct {
		Elf64_Ehdr ehdr;
		Elf64_Phdr phdrs[1025];
	} file = {
		.ehdr = header_of(1024),
	};

	assert_int_equal(open_bytes(&file, sizeof(file)), 0);
	file.ehdr.e_phnum++;
	assert_int_equal(open_bytes(&file, sizeof(file)), -ENOEXEC);
}

static void check_damaged(int fd)
{
	struct image *image CLEANUP(image) = NULL;
	uint64_t vaddr;
	size_t size;

	if (image_open(fd, "damaged", &image))
		return;
	for (uint64_t offset = 0; offset < 20000; offset += 1000)
		if (!image_offset_to_vaddr(image, offset, &vaddr))
			image_bytes(image, vaddr, 100, &size);
}

static void test_damage(void **state)
{
	uint8_t *bytes _cleanup_free_ = NULL;
	size_t size;

	fixture_compile("small", ".c", program, "-pie -fPIE -s");
	bytes = fixture_read(fixture_path("small"), &size);
	fixture_damage(bytes, size, check_damaged);
}

/* A file that shrinks after it was opened gives fewer bytes, not a crash. */
static void test_truncated_later(void **state)
{
	struct image *image CLEANUP(image) = NULL;
	size_t size;

	fixture_compile("shrinks", ".c", program, "-pie -fPIE");
	image = fixture_open(fixture_path("shrinks"));
	assert_int_equal(truncate(fixture_path("shrinks"), 100), 0);
	assert_non_null(image_bytes(image, 0, 200, &size));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_program),
		cmocka_unit_test(test_fixed_address),
		cmocka_unit_test(test_library),
		cmocka_unit_test(test_library_with_interpreter),
		cmocka_unit_test(test_bias),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_not_elf),
		cmocka_unit_test(test_hostile_segments),
		cmocka_unit_test(test_many_headers),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_truncated_later),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
