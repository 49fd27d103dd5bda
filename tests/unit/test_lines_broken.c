/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* lines: damaged and hostile DWARF costs a bounded amount of time and gives an answer or an error.
 */
#include "elf_fixture.h"

#include <errno.h>
#include <gelf.h>

#include "symbolize/lines.h"

/* No string of these files is longer. */
#define MAX_NAME (1 << 20)

static const char source[] =
	"template <typename T> static inline T leaf(T n) { return n * 3 + 1; }\n"
	"namespace app { struct s { int f(int); long sum; }; }\n"
	"__attribute__((noinline)) int app::s::f(int n)\n"
	"{ for (int i = 0; i < n; i++) { int d = leaf(i); sum += leaf<long>(d); }\n"
	"return leaf(n) + leaf(n + 1); }\n"
	"int main(int argc, char **argv)\n"
	"{ app::s s = {}; auto g = [&](int k) { return s.f(k) + argc; };\n"
	"return g(1) + g(2); }\n";

/* Answers do not matter here. Addresses all over the code, at most 200. */
static void look_up(int fd, const char *path)
{
	struct image *image CLEANUP(image) = NULL;
	struct lines *lines CLEANUP(lines) = NULL;

	if (image_open(fd, path, &image) || lines_open(image, &lines))
		return;
	for (uint64_t vaddr = 0x1000; vaddr < 0x1000 + 200 * 24; vaddr += 24) {
		const struct line_frame *frames;
		size_t count;

		if (lines_lookup(lines, vaddr, &frames, &count))
			continue;
		for (size_t i = 0; i < count; i++) {
			/* Strings are whole. */
			assert_true(!frames[i].name || strlen(frames[i].name) < MAX_NAME);
			assert_true(!frames[i].filename || strlen(frames[i].filename) < 4096);
		}
	}
}

static void look_up_all(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("broken", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	look_up(fd, "/nowhere/broken");
}

static void look_up_in(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	look_up(fd, path);
}

/* The part of the file that is DWARF. */
static void debug_range(const char *path, size_t *ret_start, size_t *ret_end)
{
	struct image *image CLEANUP(image) = fixture_open(path);
	Elf_Scn *scn = NULL;
	size_t names;

	*ret_start = SIZE_MAX;
	*ret_end = 0;
	assert_int_equal(elf_getshdrstrndx(image_elf(image), &names), 0);
	while ((scn = elf_nextscn(image_elf(image), scn))) {
		GElf_Shdr shdr;

		assert_non_null(gelf_getshdr(scn, &shdr));
		if (strncmp(elf_strptr(image_elf(image), names, shdr.sh_name), ".debug_", 7))
			continue;
		if (shdr.sh_offset < *ret_start)
			*ret_start = shdr.sh_offset;
		if (shdr.sh_offset + shdr.sh_size > *ret_end)
			*ret_end = shdr.sh_offset + shdr.sh_size;
	}
	assert_true(*ret_start < *ret_end);
}

static const char *const builds[] = {
	"g++ -gdwarf-4",
	"g++ -gdwarf-5",
	"clang++ -gdwarf-4",
	"clang++ -gdwarf-5",
};

static void build(const char *compiler)
{
	char command[512];
	FILE *file = fopen(fixture_path("b.cc"), "w");

	assert_non_null(file);
	fputs(source, file);
	assert_int_equal(fclose(file), 0);
	snprintf(command, sizeof(command), "cd %s && %s -g -O1 -w -c b.cc -o b.o && g++ b.o -o b",
		 fixture_folder, compiler);
	assert_int_equal(system(command), 0);
}

static void test_flipped(void **state)
{
	for (size_t b = 0; b < ARRAY_SIZE(builds); b++) {
		size_t size, start, end;
		uint8_t *bytes _cleanup_free_ = NULL;

		build(builds[b]);
		debug_range(fixture_path("b"), &start, &end);
		bytes = fixture_read(fixture_path("b"), &size);
		srand(1);
		for (int round = 0; round < 60; round++) {
			uint8_t *broken _cleanup_free_ = malloc(size);

			memcpy(broken, bytes, size);
			for (int flip = 0; flip < 1 << (round % 10); flip++)
				broken[start + rand() % (end - start)] ^= 1 << rand() % 8;
			look_up_all(broken, size);
		}
	}
}

static void test_truncated(void **state)
{
	for (size_t b = 0; b < ARRAY_SIZE(builds); b++) {
		size_t size, start, end;
		uint8_t *bytes _cleanup_free_ = NULL;

		build(builds[b]);
		debug_range(fixture_path("b"), &start, &end);
		bytes = fixture_read(fixture_path("b"), &size);
		for (size_t cut = 1; cut < 20; cut++) {
			/* The section headers stay; what they point to goes. */
			memset(bytes + end - cut * (end - start) / 20, 0, (end - start) / 20);
			look_up_all(bytes, size);
		}
		look_up_all(bytes, size / 2);
		look_up_all(bytes, start + 100);
	}
}

/* Damaged split units and packages beside a sound program. */
static void flip_split(const char *name)
{
	size_t size;
	uint8_t *bytes _cleanup_free_ = fixture_read(fixture_path(name), &size);

	srand(2);
	for (int round = 0; round < 60; round++) {
		uint8_t *broken _cleanup_free_ = malloc(size);
		FILE *file;

		memcpy(broken, bytes, size);
		for (int flip = 0; flip < 1 << (round % 10); flip++)
			broken[sizeof(Elf64_Ehdr) + rand() % (size - sizeof(Elf64_Ehdr))] ^=
				1 << rand() % 8;
		file = fopen(fixture_path(name), "w");
		assert_non_null(file);
		/* Some are cut off. */
		fwrite(broken, 1, round % 4 ? size : size * round / 60, file);
		assert_int_equal(fclose(file), 0);
		look_up_in(fixture_path("b"));
	}
}

static void test_split(void **state)
{
	for (size_t b = 0; b < ARRAY_SIZE(builds); b++) {
		char command[512];

		snprintf(command, sizeof(command), "%s -gsplit-dwarf", builds[b]);
		build(command);
		flip_split("b.dwo");
		build(command);
		snprintf(command, sizeof(command), "cd %s && llvm-dwp -e b -o b.dwp && rm *.dwo",
			 fixture_folder);
		assert_int_equal(system(command), 0);
		flip_split("b.dwp");
		snprintf(command, sizeof(command), "rm %s/b.dwp", fixture_folder);
		assert_int_equal(system(command), 0);
	}
}

/* DWARF 4 by hand. f is at `code`, and refers to itself for its name. */
static const char head[] = "	.text\n"
			   "	.globl _start\n"
			   "_start: ret\n"
			   "	.balign 4096\n"
			   "code: .fill 256, 1, 0x90\n"
			   "code_end:\n"
			   "	.section .debug_abbrev\n"
			   "	.uleb128 1, 0x11; .byte 1\n"	   /* unit */
			   "	.uleb128 0x11, 1, 0x12, 7, 0, 0\n" /* low_pc, high_pc */
			   "	.uleb128 2, 0x2e; .byte 1\n"	   /* subprogram */
			   "	.uleb128 0x11, 1, 0x12, 7, 0x31, 0x13, 0, 0\n"
			   "	.uleb128 3, 0x1d; .byte 1\n" /* inlined_subroutine */
			   "	.uleb128 0x31, 0x13, 0x55, 0x17, 0, 0\n"
			   "	.uleb128 4, 0x39; .byte 1\n" /* namespace */
			   "	.uleb128 0, 0\n"
			   "	.byte 0\n"
			   "	.section .debug_info\n"
			   "unit: .long end - version\n"
			   "version: .short 4\n"
			   "	.long .debug_abbrev\n"
			   "	.byte 8\n"
			   "	.uleb128 1; .quad code, 256\n";

static const char function[] = "f: .uleb128 2; .quad code, 256; .long f - unit\n";

static struct lines *open_handmade(struct image **ret_image)
{
	struct lines *lines = NULL;
	char command[256];

	snprintf(command, sizeof(command), "cd %s && gcc -nostdlib -static h.s -o h 2>log",
		 fixture_folder);
	assert_int_equal(system(command), 0);
	*ret_image = fixture_open(fixture_path("h"));
	assert_int_equal(lines_open(*ret_image, &lines), 0);
	return lines;
}

static FILE *begin_handmade(void)
{
	FILE *file = fopen(fixture_path("h.s"), "w");

	assert_non_null(file);
	fputs(head, file);
	return file;
}

/* The code's address: a page of its own in a static program. */
static uint64_t code_address(struct image *image)
{
	GElf_Phdr phdr;

	for (size_t i = 0; gelf_getphdr(image_elf(image), i, &phdr); i++) {
		if (phdr.p_type == PT_LOAD && (phdr.p_flags & PF_X))
			return ((phdr.p_vaddr + 4096) & ~4095ull) + 16;
	}
	return 0;
}

static void test_cycle_and_depth(void **state)
{
	struct lines *lines CLEANUP(lines) = NULL;
	struct image *image CLEANUP(image) = NULL;
	const struct line_frame *frames;
	FILE *file = begin_handmade();
	size_t count;

	fputs(function, file);
	for (int i = 0; i < 1000; i++)
		fprintf(file, "	.uleb128 3; .long f - unit, 0\n");
	fprintf(file, "	.fill 1002, 1, 0\n"
		      "end:\n"
		      "	.section .debug_ranges\n"
		      "	.quad 0, 256, 0, 0\n");
	assert_int_equal(fclose(file), 0);
	lines = open_handmade(&image);
	assert_int_equal(lines_lookup(lines, code_address(image), &frames, &count), 0);
	assert_int_equal(count, 256);
	assert_null(frames[0].name);
}

/* Many calls, each with the same long list of ranges. */
static void test_shared_ranges(void **state)
{
	struct lines *lines CLEANUP(lines) = NULL;
	struct image *image CLEANUP(image) = NULL;
	const struct line_frame *frames;
	FILE *file = begin_handmade();
	size_t count;

	fputs(function, file);
	fprintf(file, "	.rept 100000; .uleb128 3; .long f - unit, 0; .byte 0; .endr\n"
		      "	.byte 0, 0\n"
		      "end:\n"
		      "	.section .debug_ranges\n"
		      "	.rept 200000; .quad 1, 2; .endr\n"
		      "	.quad 0, 0\n");
	assert_int_equal(fclose(file), 0);
	lines = open_handmade(&image);
	/* Each stops at its bound; the image's is used up after some, and the rest costs nothing.
	 */
	for (int i = 0; i < 100000; i++)
		assert_int_equal(lines_lookup(lines, code_address(image), &frames, &count), -E2BIG);
}

static void test_nesting(void **state)
{
	struct lines *lines CLEANUP(lines) = NULL;
	struct image *image CLEANUP(image) = NULL;
	const struct line_frame *frames;
	FILE *file = begin_handmade();
	size_t count;

	/* No DW_AT_sibling: each level is as long as all below it. */
	fprintf(file, "	.rept 500000; .uleb128 4; .endr\n");
	fputs(function, file);
	fprintf(file, "	.fill 500003, 1, 0\nend:\n");
	assert_int_equal(fclose(file), 0);
	lines = open_handmade(&image);
	assert_int_equal(lines_lookup(lines, code_address(image), &frames, &count), 0);
	assert_int_equal(count, 0);
}

/* Sections that say they are huge. */
static void test_size_claims(void **state)
{
	size_t size, start, end;
	uint8_t *bytes _cleanup_free_ = NULL;
	Elf64_Ehdr *ehdr;
	Elf64_Shdr *shdrs;

	build("g++ -gdwarf-5 -gz");
	debug_range(fixture_path("b"), &start, &end);
	bytes = fixture_read(fixture_path("b"), &size);
	ehdr = (Elf64_Ehdr *)bytes;
	shdrs = (Elf64_Shdr *)(bytes + ehdr->e_shoff);
	for (size_t i = 0; i < ehdr->e_shnum; i++) {
		Elf64_Chdr *chdr = (Elf64_Chdr *)(bytes + shdrs[i].sh_offset);
		struct image *image CLEANUP(image) = NULL;
		struct lines *lines CLEANUP(lines) = NULL;
		int fd = memfd_create("huge", MFD_CLOEXEC);

		if (shdrs[i].sh_flags & SHF_COMPRESSED)
			chdr->ch_size = 1ull << 40;
		assert_int_equal(write(fd, bytes, size), size);
		assert_int_equal(image_open(fd, "huge", &image), 0);
		if (shdrs[i].sh_flags & SHF_COMPRESSED)
			assert_int_equal(lines_open(image, &lines), -E2BIG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flipped),	      cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_split),	      cmocka_unit_test(test_cycle_and_depth),
		cmocka_unit_test(test_shared_ranges), cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_size_claims),
	};

	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
