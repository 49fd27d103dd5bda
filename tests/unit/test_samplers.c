/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* samplers: what gperftools' libraries and look-alikes have, and what is made of it. */
#include "elf_fixture.h"

#include "elf/symtab.h"
#include "probe/sampler_jemalloc.h"
#include "probe/samplers.h"

#define FOLDER "/usr/lib/x86_64-linux-gnu/"

/* Three callers that have inlined the same lines, in forms that compilers choose. */
#define LOOK_ALIKE                                                                                 \
	"#include <stddef.h>\n"                                                                    \
	"namespace tcmalloc {\n"                                                                   \
	"struct Span;\n"                                                                           \
	"struct PageHeap { __attribute__((noinline)) void Delete(Span *); };\n"                    \
	"void PageHeap::Delete(Span *) { __asm__ volatile(\"\"); }\n"                              \
	"struct Sampler { long left; __attribute__((noinline)) bool "                              \
	"RecordAllocationSlow(unsigned long n); };\n"                                              \
	"bool Sampler::RecordAllocationSlow(unsigned long n) { return left > (long)n; }\n"         \
	"}\n"                                                                                      \
	"namespace FLAG__namespace_do_not_use_directly_use_DECLARE_int64_instead { long "          \
	"FLAGS_tcmalloc_sample_parameter; }\n"                                                     \
	"extern \"C\" void *one(size_t), *two(size_t);\n"                                          \
	"static __attribute__((noipa)) void *sampled(size_t n) { return (void *)(n + 64); }\n"     \
	"static __attribute__((noipa)) void *another(size_t n) { return (void *)(n + 32); }\n"     \
	"tcmalloc::Sampler sampler;\n"                                                             \
	"void *one(size_t n) { return sampler.RecordAllocationSlow(n) ? (void *)n : sampled(n); "  \
	"}\n"                                                                                      \
	"void *two(size_t n) { void *p = (void *)(n + 1);\n"                                       \
	"	if (__builtin_expect(!sampler.RecordAllocationSlow(n), 0)) p = SECOND(n);\n"             \
	"	return (char *)p + 1; }\n"                                                               \
	"extern \"C\" int main() { return one(1) == two(2); }\n"

static const struct sampler_probe *find(const struct sampler_probes *probes, unsigned int kind)
{
	for (size_t i = 0; i < probes->count; i++)
		if (probes->entries[i].point.kind == kind)
			return &probes->entries[i];
	return NULL;
}

static struct image *compile(const char *second, const char *options)
{
	char flags[256];

	snprintf(flags, sizeof(flags), "-O2 -DSECOND=%s %s", second, options);
	fixture_compile("look_alike", ".cc", LOOK_ALIKE, flags);
	return fixture_open(fixture_path("look_alike"));
}

static void test_look_alike(void **state)
{
	static const char *const options[] = {"-no-pie", "-pie -fPIE", "-shared -fPIC",
					      "-shared -fPIC -Wl,-z,lazy"};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct image *image = compile("sampled", options[i]);
		struct sampler_probes probes;
		struct symtab *symtab;
		const struct symbol *symbol;
		uint64_t vaddr;

		assert_int_equal(sampler_probes_find(image, NULL, false, &probes), 0);
		assert_true(probes.has_countdown);
		assert_true(probes.has_blocks);
		assert_true(sampler_probes_know_frees(&probes, true));
		assert_false(sampler_probes_know_frees(&probes, false));
		assert_int_equal(probes.count, 3);
		/* Frees first. */
		assert_int_equal(probes.entries[0].point.kind, PROBE_SPAN_FREE);
		assert_non_null(find(&probes, PROBE_COUNTDOWN));
		assert_true(find(&probes, PROBE_COUNTDOWN)->point.flags & SAMPLER_BLOCK_PROBED);
		/* Found by its callers, though its name is another one. */
		assert_int_equal(symtab_load(image, &symtab), 0);
		assert_int_equal(
			image_offset_to_vaddr(image, find(&probes, PROBE_SAMPLED)->offset, &vaddr),
			0);
		symbol = symtab_lookup(symtab, vaddr);
		assert_string_equal(symbol->name, "_ZL7sampledm");
		assert_int_equal(symbol->start, vaddr);
		symtab_free(symtab);
		sampler_probes_fini(&probes);
		image_free(image);
	}
}

static void test_callers_disagree(void **state)
{
	struct image *image = compile("another", "-pie -fPIE");
	struct sampler_probes probes;

	assert_int_equal(sampler_probes_find(image, NULL, false, &probes), 0);
	assert_true(probes.has_countdown);
	assert_false(probes.has_blocks);
	assert_false(sampler_probes_know_frees(&probes, true));
	assert_int_equal(probes.count, 1);
	assert_int_equal(probes.entries[0].point.flags, 0);
	sampler_probes_fini(&probes);
	/* Not looked for. */
	assert_int_equal(sampler_probes_find(image, NULL, true, &probes), 0);
	assert_int_equal(probes.count, 0);
	image_free(image);
}

static void test_gperftools(void **state)
{
	struct sampler_probes probes;
	struct image *image;

	if (access(FOLDER "libtcmalloc.so.4", R_OK))
		skip();
	image = fixture_open(FOLDER "libtcmalloc.so.4");
	assert_int_equal(sampler_probes_find(image, NULL, false, &probes), 0);
	assert_true(probes.has_countdown && probes.has_blocks);
	assert_int_equal(probes.count, 3);
	assert_true(find(&probes, PROBE_SAMPLED)->point.flags & SAMPLER_OWN_IMAGE);
	assert_true(find(&probes, PROBE_SAMPLED)->point.interval_at != 0);
	sampler_probes_fini(&probes);
	image_free(image);
}

static void test_nothing_calls_it(void **state)
{
	struct sampler_probes probes;
	struct image *image;

	if (access(FOLDER "libtcmalloc_minimal.so.4", R_OK))
		skip();
	image = fixture_open(FOLDER "libtcmalloc_minimal.so.4");
	assert_int_equal(sampler_probes_find(image, NULL, false, &probes), 0);
	assert_false(probes.has_countdown);
	assert_int_equal(probes.count, 0);
	image_free(image);
}

/* jemalloc's functions, of which the first has LAST, and the names begin with PREFIX. */
#define JEMALLOC                                                                                   \
	"#define NAME_(a, b) a##b\n"                                                               \
	"#define NAME(a, b) NAME_(a, b)\n"                                                         \
	"#define JE(name) __attribute__((noipa)) NAME(PREFIX, name)\n"                             \
	"unsigned long NAME(PREFIX, lg_prof_sample);\n"                                            \
	"static long sum;\n"                                                                       \
	"void JE(large_prof_info_set)(long a, long b, long c) { sum += c; }\n"                     \
	"void JE(prof_recent_alloc_reset)(long a, long b) { sum += b; }\n"                         \
	"void JE(prof_free_sampled_object)(long a, long b, long *c) { sum += *c; }\n"              \
	"void JE(prof_malloc_sample_object)(long a, long b, long c, long d, long e)\n"             \
	"{ NAME(PREFIX, large_prof_info_set)(a, LAST, c); sum += d; }\n"                           \
	"int main(void) { return 0; }\n"

static struct image *compile_jemalloc(const char *options)
{
	fixture_compile("jemalloc", ".c", JEMALLOC, options);
	return fixture_open(fixture_path("jemalloc"));
}

static void test_jemalloc(void **state)
{
	static const unsigned int kinds[] = {
		PROBE_OBJECT_FREED,
		PROBE_EXTENT_LEAVES,
		PROBE_EXTENT_SAMPLED,
		PROBE_OBJECT_SAMPLED,
	};
	static const char *const options[] = {
		"-O2 -DPREFIX=je_ -DLAST=e -pie -fPIE",
		"-O2 -DPREFIX=_rjem_je_ -DLAST=e -no-pie",
		"-O0 -DPREFIX= -DLAST=e -shared -fPIC",
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct image *image = compile_jemalloc(options[i]);
		struct sampler_probes probes;

		assert_int_equal(sampler_probes_find(image, NULL, false, &probes), 0);
		assert_true(probes.has_jemalloc);
		assert_true(sampler_probes_know_frees(&probes, false));
		assert_int_equal(probes.count, ARRAY_SIZE(kinds));
		for (size_t n = 0; n < ARRAY_SIZE(kinds); n++)
			assert_int_equal(probes.entries[n].point.kind, kinds[n]);
		assert_true(find(&probes, PROBE_OBJECT_SAMPLED)->point.interval_at != 0);
		sampler_probes_fini(&probes);
		/* Not looked for. */
		assert_int_equal(sampler_probes_find(image, NULL, true, &probes), 0);
		assert_int_equal(probes.count, 0);
		image_free(image);
	}
}

static void test_other_jemalloc(void **state)
{
	static const char *const options[] = {
		/* No fifth argument. */
		"-O2 -DPREFIX=je_ -DLAST=d",
		/* Another name for one of them, or no names. */
		"-O2 -DPREFIX=je_ -DLAST=e -Dlarge_prof_info_set=large_prof_tctx_set",
		"-O2 -DPREFIX=je_ -DLAST=e -s",
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct image *image = compile_jemalloc(options[i]);
		struct sampler_probes probes;

		assert_int_equal(sampler_probes_find(image, NULL, false, &probes), 0);
		assert_false(probes.has_jemalloc);
		assert_int_equal(probes.count, 0);
		sampler_probes_fini(&probes);
		image_free(image);
	}
}

static void test_jemalloc_interval(void **state)
{
	assert_int_equal(jemalloc_interval_parse(NULL), 0);
	assert_int_equal(jemalloc_interval_parse(""), 0);
	assert_int_equal(jemalloc_interval_parse("narenas:1,lg_prof_sample:3"), 0);
	assert_int_equal(jemalloc_interval_parse("prof:true"), 1 << 19);
	assert_int_equal(jemalloc_interval_parse("prof:true,"), 1 << 19);
	assert_int_equal(jemalloc_interval_parse("prof:truest"), 0);
	assert_int_equal(jemalloc_interval_parse("xprof:true"), 0);
	assert_int_equal(jemalloc_interval_parse("prof:true,prof:false"), 0);
	assert_int_equal(jemalloc_interval_parse("lg_prof_sample:0,prof:true"), 1);
	assert_int_equal(jemalloc_interval_parse("prof:true,lg_prof_sample:0x10"), 1 << 16);
	assert_int_equal(jemalloc_interval_parse("prof:true,lg_prof_sample:9x"), 1 << 19);
	assert_true(jemalloc_interval_parse("prof:true,lg_prof_sample:99") == 1ull << 63);
	assert_int_equal(jemalloc_interval_parse("prof:true,prof_active:false"), 0);
	assert_int_equal(jemalloc_interval_parse("prof_active:true,prof:true"), 1 << 19);
}

static void find_damaged(int fd)
{
	struct sampler_probes probes;
	struct image *image;

	if (image_open(fd, "/nowhere/damaged", &image))
		return;
	if (!sampler_probes_find(image, NULL, false, &probes))
		sampler_probes_fini(&probes);
	image_free(image);
}

static void test_damaged(void **state)
{
	struct image *image = compile("sampled", "-shared -fPIC");
	uint8_t *bytes;
	size_t size;

	image_free(image);
	bytes = fixture_read(fixture_path("look_alike"), &size);
	fixture_damage(bytes, size, find_damaged);
	free(bytes);
}

static void test_interval(void **state)
{
	assert_int_equal(sampler_interval_parse(NULL), 0);
	assert_int_equal(sampler_interval_parse(""), 0);
	assert_int_equal(sampler_interval_parse("0"), 0);
	assert_int_equal(sampler_interval_parse("-5"), 0);
	assert_int_equal(sampler_interval_parse("524288"), 524288);
	/* gperftools knows no suffix and no other base. */
	assert_int_equal(sampler_interval_parse("512K"), 512);
	assert_int_equal(sampler_interval_parse("0x10"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_look_alike),	  cmocka_unit_test(test_callers_disagree),
		cmocka_unit_test(test_gperftools),	  cmocka_unit_test(test_nothing_calls_it),
		cmocka_unit_test(test_damaged),		  cmocka_unit_test(test_interval),
		cmocka_unit_test(test_jemalloc),	  cmocka_unit_test(test_other_jemalloc),
		cmocka_unit_test(test_jemalloc_interval),
	};

	return cmocka_run_group_tests_name("samplers", tests, fixture_setup, fixture_teardown);
}
