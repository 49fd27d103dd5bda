/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * placement: the allocators of one distribution, Debian 12, against what was chosen by hand with
 * objdump. The offsets belong to one build each: a library with another build-id is a skip.
 */
#include "elf_fixture.h"

#include "elf/symtab.h"
#include "probe/placement.h"
#include "../fixtures/functions.h"

#define LIBRARIES "/usr/lib/x86_64-linux-gnu/"
#define RAX	  0
#define RCX	  1
#define RDX	  2
#define RSI	  6
#define RDI	  7

struct known {
	const char *name;
	uint64_t start;
	uint32_t offset;
	bool moved; /* an argument is not in its register of the entry: they are told */
	uint8_t size_reg, aux_reg, ptr_reg;
	bool single_stepped;
};

#define POINT(name_, start_, offset_, ...)                                                         \
	{                                                                                          \
		.name = name_, .start = start_, .offset = offset_, ##__VA_ARGS__                   \
	}

static void check_register(const struct known *known, signed char arg, uint8_t told, uint8_t chosen)
{
	if (arg == CATALOG_NO_ARG)
		assert_int_equal(chosen, 0);
	else
		assert_int_equal(chosen, known->moved ? told : catalog_arg_register(arg));
}

static void check_point(struct image *image, const struct symtab *symtab, const struct known *known)
{
	const struct catalog_function *function = known_function(known->name, strlen(known->name));
	const struct symbol *symbol = symtab_find(symtab, known->name);
	struct placement placement;
	const uint8_t *code;
	size_t size = 0;

	assert_non_null(function);
	assert_non_null(symbol);
	code = image_bytes(image, symbol->start, symbol->size, &size);
	placement = placement_choose(code, size, function);
	if (symbol->start != known->start || placement.offset != known->offset)
		print_message("# %s is at %#llx+%#x\n", known->name,
			      (unsigned long long)symbol->start, placement.offset);
	assert_int_equal(symbol->start, known->start);
	assert_int_equal(placement.offset, known->offset);
	assert_int_equal(placement.why_entry != NULL, known->single_stepped);
	check_register(known, function->size_arg, known->size_reg, placement.size_reg);
	check_register(known, function->aux_arg, known->aux_reg, placement.aux_reg);
	check_register(known, function->ptr_arg, known->ptr_reg, placement.ptr_reg);
}

static void check_build(const char *path, const char *build_id, const struct known *points,
			size_t count)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;

	if (access(path, R_OK)) {
		print_message("# SKIP %s is not installed\n", path);
		skip();
	}
	image = fixture_open(path);
	if (strcmp(image_build_id(image), build_id) != 0) {
		print_message("# SKIP %s is build %s, not %s\n", path, image_build_id(image),
			      build_id);
		/* What skip() jumps over is not cleaned up. */
		image_free(take_ptr(image));
		skip();
	}
	assert_int_equal(symtab_load(image, &symtab), 0);
	for (size_t i = 0; i < count; i++)
		check_point(image, symtab, &points[i]);
}

/* libc6 2.36-9+deb12u14 */
static void test_glibc(void **state)
{
	static const struct known points[] = {
		POINT("malloc", 0x98930, 0),
		/* test rdi,rdi; je; push rbp */
		POINT("free", 0x98ef0, 9),
		POINT("cfree", 0x98ef0, 9),
		POINT("realloc", 0x99130, 0),
		POINT("memalign", 0x99610, 7),
		POINT("aligned_alloc", 0x99610, 7),
		POINT("valloc", 0x99650, 7),
		POINT("pvalloc", 0x99680, 7),
		POINT("calloc", 0x996e0, 0),
		POINT("posix_memalign", 0x9a280, 7),
		/* mov rsi,rax; mul rdx; mov rax,rsi; jo: count and size are both lost */
		POINT("reallocarray", 0x9a7e0, 0, .single_stepped = true),
	};

	check_build(LIBRARIES "libc.so.6", "93ac61ec5a8eb1396f9fbd350e3169a558528a40", points,
		    ARRAY_SIZE(points));
}

/* libgoogle-perftools4 2.10-1 */
static void test_tcmalloc(void **state)
{
	static const struct known points[] = {
		POINT("free", 0x37a00, 0xa),
		POINT("cfree", 0x37a00, 0xa),
		POINT("_ZdlPv", 0x37a00, 0xa),
		POINT("_ZdaPv", 0x37a00, 0xa),
		POINT("_ZdlPvm", 0x37b80, 0xa),
		POINT("_ZdaPvm", 0x37b80, 0xa),
		POINT("_ZdlPvRKSt9nothrow_t", 0x37e10, 0xa),
		POINT("_ZdaPvRKSt9nothrow_t", 0x37e10, 0xa),
		POINT("_ZdlPvSt11align_val_t", 0x37f80, 0xa),
		POINT("_ZdaPvSt11align_val_t", 0x37f80, 0xa),
		POINT("_ZdlPvmSt11align_val_t", 0x380f0, 0xa),
		POINT("_ZdaPvmSt11align_val_t", 0x380f0, 0xa),
		POINT("_ZdlPvSt11align_val_tRKSt9nothrow_t", 0x38260, 0xa),
		POINT("_ZdaPvSt11align_val_tRKSt9nothrow_t", 0x38260, 0xa),
		POINT("calloc", 0x383f0, 0xc),
		POINT("realloc", 0x385e0, 0),
		POINT("_Znwm", 0x39300, 0xd),
		POINT("_Znam", 0x39300, 0xd),
		POINT("_ZnwmSt11align_val_t", 0x39400, 0xd),
		POINT("_ZnamSt11align_val_t", 0x39400, 0xd),
		POINT("_ZnwmRKSt9nothrow_t", 0x39700, 0xd),
		POINT("_ZnamRKSt9nothrow_t", 0x39700, 0xd),
		POINT("_ZnwmSt11align_val_tRKSt9nothrow_t", 0x39800, 0xd),
		POINT("_ZnamSt11align_val_tRKSt9nothrow_t", 0x39800, 0xd),
		POINT("malloc", 0x39b40, 0xd),
		POINT("memalign", 0x39c80, 0xa),
		POINT("aligned_alloc", 0x39c80, 0xa),
		POINT("posix_memalign", 0x39e10, 0xb),
		POINT("valloc", 0x39e60, 0),
		POINT("pvalloc", 0x39e90, 0),
	};

	check_build(LIBRARIES "libtcmalloc.so.4", "560cd227169ae8f93cb59e3215f4ea11c299fa69",
		    points, ARRAY_SIZE(points));
}

/* libtcmalloc-minimal4 2.10-1 */
static void test_tcmalloc_minimal(void **state)
{
	static const struct known points[] = {
		POINT("free", 0x1d100, 0xa),
		POINT("cfree", 0x1d100, 0xa),
		POINT("_ZdlPv", 0x1d100, 0xa),
		POINT("_ZdaPv", 0x1d100, 0xa),
		POINT("_ZdlPvm", 0x1d280, 0xa),
		POINT("_ZdaPvm", 0x1d280, 0xa),
		POINT("_ZdlPvRKSt9nothrow_t", 0x1d500, 0xa),
		POINT("_ZdaPvRKSt9nothrow_t", 0x1d500, 0xa),
		POINT("_ZdlPvSt11align_val_t", 0x1d670, 0xa),
		POINT("_ZdaPvSt11align_val_t", 0x1d670, 0xa),
		POINT("_ZdlPvmSt11align_val_t", 0x1d7e0, 0xa),
		POINT("_ZdaPvmSt11align_val_t", 0x1d7e0, 0xa),
		POINT("_ZdlPvSt11align_val_tRKSt9nothrow_t", 0x1d950, 0xa),
		POINT("_ZdaPvSt11align_val_tRKSt9nothrow_t", 0x1d950, 0xa),
		POINT("calloc", 0x1dae0, 0),
		POINT("realloc", 0x1dc70, 0),
		POINT("_Znwm", 0x1e6c0, 0xa),
		POINT("_Znam", 0x1e6c0, 0xa),
		POINT("_ZnwmSt11align_val_t", 0x1e790, 0xd),
		POINT("_ZnamSt11align_val_t", 0x1e790, 0xd),
		POINT("_ZnwmRKSt9nothrow_t", 0x1e9c0, 0xa),
		POINT("_ZnamRKSt9nothrow_t", 0x1e9c0, 0xa),
		POINT("_ZnwmSt11align_val_tRKSt9nothrow_t", 0x1eaa0, 0xd),
		POINT("_ZnamSt11align_val_tRKSt9nothrow_t", 0x1eaa0, 0xd),
		POINT("malloc", 0x1ed40, 0xa),
		POINT("memalign", 0x1ee40, 0xa),
		POINT("aligned_alloc", 0x1ee40, 0xa),
		POINT("posix_memalign", 0x1efb0, 0xb),
		POINT("valloc", 0x1f000, 0),
		POINT("pvalloc", 0x1f030, 0),
	};

	check_build(LIBRARIES "libtcmalloc_minimal.so.4",
		    "39dfd4a5855703fa6c2469749282f75b18a1aa66", points, ARRAY_SIZE(points));
}

/* libjemalloc2 5.3.0-1 */
static void test_jemalloc(void **state)
{
	static const struct known points[] = {
		POINT("malloc", 0x23910, 7),
		POINT("posix_memalign", 0x239f0, 0),
		POINT("aligned_alloc", 0x24720, 0),
		POINT("calloc", 0x253f0, 0),
		POINT("free", 0x27c60, 0x30),
		POINT("memalign", 0x27d30, 0),
		POINT("valloc", 0x289b0, 0),
		POINT("mallocx", 0x294e0, 0),
		POINT("rallocx", 0x2bdc0, 2),
		POINT("realloc", 0x2bdd0, 0),
		POINT("xallocx", 0x2ddf0, 0),
		POINT("dallocx", 0x2f380, 0),
		POINT("sdallocx", 0x31390, 0xa),
		POINT("_Znwm", 0xade30, 7),
		POINT("_Znam", 0xadf10, 0),
		POINT("_ZnwmRKSt9nothrow_t", 0xadf20, 7),
		POINT("_ZnamRKSt9nothrow_t", 0xae000, 0),
		POINT("_ZnwmSt11align_val_t", 0xae010, 0),
		POINT("_ZnamSt11align_val_t", 0xae040, 0),
		POINT("_ZnwmSt11align_val_tRKSt9nothrow_t", 0xae070, 0),
		POINT("_ZnamSt11align_val_tRKSt9nothrow_t", 0xae0a0, 0),
		POINT("_ZdlPv", 0xae0d0, 0),
		POINT("_ZdaPv", 0xae0e0, 0),
		POINT("_ZdlPvRKSt9nothrow_t", 0xae0f0, 0),
		POINT("_ZdaPvRKSt9nothrow_t", 0xae100, 0),
		/* test rdi,rdi; je; sub 8,rsp */
		POINT("_ZdlPvm", 0xae110, 3),
		POINT("_ZdaPvm", 0xae130, 3),
		POINT("_ZdlPvSt11align_val_t", 0xae150, 0),
		POINT("_ZdaPvSt11align_val_t", 0xae160, 0),
		POINT("_ZdlPvSt11align_val_tRKSt9nothrow_t", 0xae170, 0),
		POINT("_ZdaPvSt11align_val_tRKSt9nothrow_t", 0xae180, 0),
		/* test rdi,rdi; je; push rbp */
		POINT("_ZdlPvmSt11align_val_t", 0xae190, 5),
		POINT("_ZdaPvmSt11align_val_t", 0xae1f0, 5),
	};

	check_build(LIBRARIES "libjemalloc.so.2", "1d5163c246dc9cd2b4d339f2ac42efd95c6e0ae1",
		    points, ARRAY_SIZE(points));
}

/* libmimalloc2.0 2.0.9+ds-2: the first argument makes room for the heap. */
static void test_mimalloc(void **state)
{
	static const struct known points[] = {
		POINT("malloc", 0x10b70, 0x15, .moved = true, .size_reg = RSI),
		POINT("calloc", 0x111f0, 0x12, .moved = true, .size_reg = RSI, .aux_reg = RAX),
		POINT("realloc", 0x11670, 0x14, .moved = true, .size_reg = RDX, .ptr_reg = RSI),
		POINT("mi_heap_realloc", 0x115b0, 2),
		POINT("reallocarray", 0x108d0, 0),
		POINT("mi_malloc_aligned", 0x12300, 0x14, .moved = true, .size_reg = RSI,
		      .aux_reg = RDX),
		POINT("memalign", 0x108f0, 0),
		POINT("aligned_alloc", 0x108b0, 0),
		POINT("posix_memalign", 0x108a0, 0),
		POINT("valloc", 0x10880, 0),
		POINT("pvalloc", 0x108c0, 0),
		/* mov rdi,rcx; test rdi,rdi; je; ... without a branch, rdi lost ...; jne at 4c */
		POINT("free", 0x10ee0, 0x4c, .moved = true, .ptr_reg = RCX),
		POINT("mi_free", 0x10ee0, 0x4c, .moved = true, .ptr_reg = RCX),
		POINT("_ZdlPv", 0x10ee0, 0x4c, .moved = true, .ptr_reg = RCX),
		POINT("_ZdaPv", 0x10ee0, 0x4c, .moved = true, .ptr_reg = RCX),
		POINT("cfree", 0x10f90, 0),
		POINT("_ZdlPvm", 0x11100, 0),
		POINT("_ZdaPvm", 0x11100, 0),
		POINT("_ZdlPvSt11align_val_t", 0x11150, 0),
		POINT("_ZdaPvSt11align_val_t", 0x11160, 0),
		POINT("_ZdlPvmSt11align_val_t", 0x11120, 0),
		POINT("_ZdaPvmSt11align_val_t", 0x11130, 0),
		POINT("_Znwm", 0x11ab0, 0),
		POINT("_Znam", 0x11ab0, 0),
		POINT("mi_new_nothrow", 0x11c70, 7),
		POINT("_ZnwmRKSt9nothrow_t", 0x11cd0, 0),
		POINT("_ZnamRKSt9nothrow_t", 0x11ce0, 0),
		POINT("_ZnwmSt11align_val_t", 0x11cf0, 0),
		POINT("_ZnamSt11align_val_t", 0x11cf0, 0),
		POINT("_ZnwmSt11align_val_tRKSt9nothrow_t", 0x11d70, 0),
		POINT("_ZnamSt11align_val_tRKSt9nothrow_t", 0x11d80, 0),
	};

	check_build(LIBRARIES "libmimalloc.so.2", "d07f4e7dc9a039fcbe7747f416476bd65cb48e8b",
		    points, ARRAY_SIZE(points));
}

/* musl 1.2.3-1 */
static void test_musl(void **state)
{
	static const struct known points[] = {
		POINT("malloc", 0x27920, 0),
		POINT("free", 0x27810, 0),
		POINT("realloc", 0x29fe0, 0),
		POINT("aligned_alloc", 0x27930, 0),
		POINT("calloc", 0x27720, 0),
		POINT("memalign", 0x29f90, 0),
		POINT("posix_memalign", 0x29fa0, 0),
		/* mov rdi,rsi; mov 4096,edi; jmp memalign */
		POINT("valloc", 0x20690, 8, .moved = true, .size_reg = RSI),
		POINT("reallocarray", 0x29ff0, 6),
	};

	check_build("/lib/ld-musl-x86_64.so.1", "54d00df44fce62f541ca62b56bdef5bf31ff077c", points,
		    ARRAY_SIZE(points));
}

/* libclang-rt-14-dev 14.0.6-12 */
static void test_scudo(void **state)
{
	static const struct known points[] = {
		POINT("malloc", 0x6730, 0),
		POINT("free", 0x62f0, 0),
		POINT("calloc", 0x5ca0, 0),
		POINT("realloc", 0x6a50, 0),
		POINT("memalign", 0x68d0, 0),
		POINT("aligned_alloc", 0x79e0, 0),
		POINT("posix_memalign", 0x6930, 0),
		POINT("valloc", 0x6ea0, 0),
		POINT("pvalloc", 0x69c0, 0),
		POINT("_Znwm", 0xc640, 0),
		POINT("_Znam", 0xc670, 0),
		POINT("_ZnwmRKSt9nothrow_t", 0xc6a0, 0),
		POINT("_ZnamRKSt9nothrow_t", 0xc6d0, 0),
		POINT("_ZnwmSt11align_val_t", 0xc700, 0),
		POINT("_ZnamSt11align_val_t", 0xc720, 0),
		POINT("_ZnwmSt11align_val_tRKSt9nothrow_t", 0xc740, 0),
		POINT("_ZnamSt11align_val_tRKSt9nothrow_t", 0xc760, 0),
		POINT("_ZdlPv", 0xc780, 0),
		POINT("_ZdaPv", 0xc7b0, 0),
		POINT("_ZdlPvRKSt9nothrow_t", 0xc7e0, 0),
		POINT("_ZdaPvRKSt9nothrow_t", 0xc810, 0),
		POINT("_ZdlPvm", 0xc840, 0),
		POINT("_ZdaPvm", 0xc870, 0),
		POINT("_ZdlPvSt11align_val_t", 0xc8a0, 0),
		POINT("_ZdaPvSt11align_val_t", 0xc8c0, 0),
		POINT("_ZdlPvSt11align_val_tRKSt9nothrow_t", 0xc8e0, 0),
		POINT("_ZdaPvSt11align_val_tRKSt9nothrow_t", 0xc900, 0),
		POINT("_ZdlPvmSt11align_val_t", 0xc920, 0),
		POINT("_ZdaPvmSt11align_val_t", 0xc940, 0),
	};

	check_build("/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/"
		    "libclang_rt.scudo_standalone-x86_64.so",
		    "28b23c0cff4ed3b52f5bbd12bf0b90029e249052", points, ARRAY_SIZE(points));
}

/* libstdc++6 12.2.0-14+deb12u1, built with CET: endbr64 is passed over. */
static void test_libstdcxx(void **state)
{
	static const struct known points[] = {
		/* endbr64; test rdi,rdi; mov 1,eax; push rbx */
		POINT("_Znwm", 0xa9570, 0xc),
		POINT("_Znam", 0xa95d0, 4),
		POINT("_ZnwmSt11align_val_t", 0xa9600, 4),
		POINT("_ZnamSt11align_val_t", 0xa9690, 4),
		/* endbr64; sub 8,rsp; call */
		POINT("_ZnwmRKSt9nothrow_t", 0xa95b0, 0, .single_stepped = true),
		POINT("_ZnamRKSt9nothrow_t", 0xa95e0, 0, .single_stepped = true),
		POINT("_ZdlPv", 0xa78d0, 4),
		POINT("_ZdlPvm", 0xa78e0, 4),
		POINT("_ZdaPv", 0xa7900, 4),
		POINT("_ZdaPvm", 0xa7910, 4),
		POINT("_ZdlPvSt11align_val_t", 0xa96c0, 4),
		/* endbr64; mov rdx,rsi; jmp */
		POINT("_ZdlPvmSt11align_val_t", 0xa96e0, 7),
		POINT("_ZdaPvmSt11align_val_t", 0xa9710, 7),
	};

	check_build(LIBRARIES "libstdc++.so.6", "289ee39f8c07bd4fa48102dfeeb7e6f9c76158b4", points,
		    ARRAY_SIZE(points));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_glibc),	 cmocka_unit_test(test_tcmalloc),
		cmocka_unit_test(test_jemalloc), cmocka_unit_test(test_tcmalloc_minimal),
		cmocka_unit_test(test_mimalloc), cmocka_unit_test(test_musl),
		cmocka_unit_test(test_scudo),	 cmocka_unit_test(test_libstdcxx),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
