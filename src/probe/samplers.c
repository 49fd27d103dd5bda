/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gperftools exports Sampler::RecordAllocationSlow() and PageHeap::Delete(), but
 * DoSampledAllocation() is static and has no name in a stripped library. All callers of the former
 * have inlined the same lines, though: `if (!RecordAllocationSlow(size)) return
 * DoSampledAllocation(size)`. So it is the first function called, or jumped to, where the result
 * was false; all callers must agree on it.
 */
#include "probe/samplers.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>
#include <Zydis/Zydis.h>

#include "elf/code.h"
#include "elf/functions.h"
#include "elf/plt.h"
#include "elf/symtab.h"
#include "elf/usdt.h"
#include "probe/sampler_jemalloc.h"
#include "probe/usdt_args.h"

#define RECORD_SLOW "_ZN8tcmalloc7Sampler20RecordAllocationSlowEm"
#define SAMPLED	    "_ZL19DoSampledAllocationm"
#define SPAN_DELETE "_ZN8tcmalloc8PageHeap6DeleteEPNS_4SpanE"
#define PARAMETER                                                                                  \
	"_ZN61FLAG__namespace_do_not_use_directly_use_DECLARE_int64_instead31FLAGS_tcmalloc_"      \
	"sample_parameterE"

/* A call is 5 bytes: e8 and the distance. */
#define CALL_SIZE 5

/* Instructions from the call to the test of its result, and on to the next call. */
#define TEST_WITHIN 12
#define CALL_WITHIN 12

/* Code that may hold callers: a bound for files that claim to be huge. */
#define CODE_MAX_BYTES (256ull << 20)

void sampler_probes_fini(struct sampler_probes *probes)
{
	free(probes->entries);
	*probes = (struct sampler_probes){};
}

static int add_probe(struct sampler_probes *probes, const struct sampler_probe *probe)
{
	struct sampler_probe *entries;

	if (probes->count == SAMPLER_POINTS_MAX)
		return -E2BIG;
	entries = reallocarray(probes->entries, probes->count + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	probes->entries = entries;
	entries[probes->count++] = *probe;
	return 0;
}

/* One of the USDT probes otel_memory. */
static int add_marker(struct image *image, const struct usdt_probe *usdt,
		      struct sampler_probes *probes)
{
	bool is_alloc = !strcmp(usdt->name, "alloc"), is_free = !strcmp(usdt->name, "free");
	struct sampler_probe probe = {
		.name = is_alloc ? "otel_memory:alloc" : "otel_memory:free",
		.point.kind = is_alloc ? PROBE_TOLD_ALLOC : PROBE_TOLD_FREE,
	};

	if (!is_alloc && !is_free)
		return 0;
	if (usdt_args_parse(usdt->arguments, probe.point.args, is_alloc ? 3 : 1) ||
	    image_vaddr_to_offset(image, usdt->vaddr, &probe.offset) || probe.offset > UINT32_MAX ||
	    (usdt->semaphore && image_vaddr_to_offset(image, usdt->semaphore, &probe.semaphore))) {
		probes->unreadable++;
		return 0;
	}
	if (is_alloc)
		probes->tells_allocs = true;
	else
		probes->tells_frees = true;
	return add_probe(probes, &probe);
}

static int add_markers(struct image *image, struct sampler_probes *probes)
{
	struct usdt usdt CLEANUP(usdt) = {};
	int err = usdt_load(image, "otel_memory", &usdt);

	for (size_t i = 0; i < usdt.count && !err; i++)
		err = add_marker(image, &usdt.entries[i], probes);
	for (size_t i = 0; i < probes->count && !probes->tells_frees; i++)
		probes->entries[i].point.flags |= SAMPLER_FREES_UNKNOWN;
	return err;
}

/* The address of a variable, or 0. */
static uint64_t find_variable(struct image *image, const char *wanted)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while (elf && (scn = elf_nextscn(elf, scn))) {
		Elf_Data *data;

		if (!gelf_getshdr(scn, &shdr) || !shdr.sh_entsize ||
		    (shdr.sh_type != SHT_DYNSYM && shdr.sh_type != SHT_SYMTAB))
			continue;
		data = elf_getdata(scn, NULL);
		for (size_t i = 0; data && i < data->d_size / shdr.sh_entsize; i++) {
			GElf_Sym symbol;
			const char *name;

			if (i > INT32_MAX || !gelf_getsym(data, (int)i, &symbol) ||
			    GELF_ST_TYPE(symbol.st_info) != STT_OBJECT ||
			    symbol.st_shndx == SHN_UNDEF || symbol.st_size != 8)
				continue;
			name = elf_strptr(elf, shdr.sh_link, symbol.st_name);
			if (name && !strcmp(name, wanted))
				return symbol.st_value;
		}
	}
	return 0;
}

/* Where callers of a function call: the function itself, and the stub that leads to it, or 0. */
struct callee {
	uint64_t function;
	uint64_t stub;
};

static int find_callee(struct image *image, const char *name, uint64_t function, struct callee *ret)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	struct plt plt = {};
	int err = elf ? plt_find(elf, &plt) : 0;

	*ret = (struct callee){.function = function};
	for (size_t i = 0; i < plt.count; i++)
		if (plt.stubs[i].name && !strcmp(plt.stubs[i].name, name))
			ret->stub = plt.stubs[i].start;
	free(plt.stubs);
	return err;
}

/* What the callers say: the one function that all of them lead to, and how many they are. */
struct callers {
	size_t count;
	size_t agreeing;
	uint64_t target;
	bool contradict;
};

/* Where a direct branch leads; false if it is none. */
static bool branch_target(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
			  uint64_t vaddr, uint64_t *ret)
{
	return operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && operands[0].imm.is_relative &&
	       ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, &operands[0], vaddr, ret));
}

static bool is_test_of_result(const ZydisDecodedInstruction *insn,
			      const ZydisDecodedOperand *operands)
{
	return insn->mnemonic == ZYDIS_MNEMONIC_TEST &&
	       operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       operands[0].reg.value == ZYDIS_REGISTER_AL &&
	       operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       operands[1].reg.value == ZYDIS_REGISTER_AL;
}

/* A place in a segment's code. */
struct place {
	const struct code_segment *segment;
	const uint8_t *bytes;
	uint64_t vaddr;
};

/* Decodes the instruction at a place and steps behind it; *ret_vaddr is where it was. */
static bool decode_next(struct place *place, ZydisDecodedInstruction *insn,
			ZydisDecodedOperand *operands, uint64_t *ret_vaddr)
{
	uint64_t at = place->vaddr - place->segment->vaddr;
	ZydisDecoder decoder;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	if (at >= place->segment->size ||
	    !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, place->bytes + at,
						 place->segment->size - at, insn, operands)))
		return false;
	*ret_vaddr = place->vaddr;
	place->vaddr += insn->length;
	return true;
}

/* From behind the call to where it goes on if the result was false. */
static bool find_false_way(struct place *place)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	bool tested = false;
	uint64_t vaddr, target;

	for (int i = 0; i < TEST_WITHIN && decode_next(place, &insn, operands, &vaddr); i++) {
		if (insn.mnemonic == ZYDIS_MNEMONIC_JNZ && tested)
			return true;
		if (insn.mnemonic == ZYDIS_MNEMONIC_JZ && tested) {
			if (!branch_target(&insn, operands, vaddr, &target))
				return false;
			place->vaddr = target;
			return true;
		}
		if (insn.meta.branch_type != ZYDIS_BRANCH_TYPE_NONE)
			return false;
		/* Moves leave the flags alone; compilers put some in between. */
		if (insn.mnemonic != ZYDIS_MNEMONIC_MOV && insn.mnemonic != ZYDIS_MNEMONIC_MOVZX)
			tested = is_test_of_result(&insn, operands);
	}
	return false;
}

/* The first function that is called, or jumped to, from a place on. */
static bool find_next_function(struct place place, const struct functions *functions, uint64_t *ret)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	uint64_t vaddr, target;

	for (int i = 0; i < CALL_WITHIN && decode_next(&place, &insn, operands, &vaddr); i++) {
		if (insn.meta.branch_type == ZYDIS_BRANCH_TYPE_NONE)
			continue;
		if ((insn.mnemonic != ZYDIS_MNEMONIC_CALL && insn.mnemonic != ZYDIS_MNEMONIC_JMP) ||
		    !branch_target(&insn, operands, vaddr, &target))
			return false;
		if (insn.mnemonic == ZYDIS_MNEMONIC_CALL || functions_begin(functions, target)) {
			*ret = target;
			return true;
		}
		place.vaddr = target;
	}
	return false;
}

static void note_caller(struct callers *callers, struct place place,
			const struct functions *functions)
{
	uint64_t target;

	callers->count++;
	if (!find_false_way(&place) || !find_next_function(place, functions, &target) ||
	    !functions_begin(functions, target))
		return;
	callers->contradict |= callers->agreeing && callers->target != target;
	callers->target = target;
	callers->agreeing++;
}

static int find_callers(struct image *image, const struct callee *callee, struct callers *ret)
{
	const struct functions functions = functions_load(image);
	struct callers callers = {};
	struct code code;

	*ret = callers;
	if (code_load(image, &code))
		return 0;
	for (size_t i = 0; i < code.count; i++) {
		struct place place = {.segment = &code.segments[i]};
		_cleanup_free_ uint8_t *bytes = NULL;

		if (place.segment->size > CODE_MAX_BYTES)
			continue;
		bytes = calloc(1, place.segment->size);
		if (!bytes)
			return -ENOMEM;
		code_read(&code, place.segment->offset, bytes, place.segment->size);
		place.bytes = bytes;
		for (uint64_t at = 0; at + CALL_SIZE <= place.segment->size; at++) {
			int32_t distance;
			uint64_t target;

			if (bytes[at] != 0xe8)
				continue;
			memcpy(&distance, bytes + at + 1, sizeof(distance));
			place.vaddr = place.segment->vaddr + at + CALL_SIZE;
			target = place.vaddr + (int64_t)distance;
			if (target == callee->function || (callee->stub && target == callee->stub))
				note_caller(&callers, place, &functions);
		}
	}
	*ret = callers;
	return 0;
}

/* Of a library that is all allocator, no frame is of interest. */
static bool is_all_allocator(const struct image *image)
{
	const char *slash = strrchr(image_path(image), '/');

	slash = slash ? slash + 1 : image_path(image);
	return !strncmp(slash, "libtcmalloc", 11) || !strncmp(slash, "libjemalloc", 11);
}

static int add_function(struct image *image, struct sampler_probes *probes, const char *name,
			uint64_t vaddr, uint64_t parameter, const struct sampler_point *point)
{
	struct sampler_probe probe = {.name = name, .point = *point};

	if (image_vaddr_to_offset(image, vaddr, &probe.offset) || probe.offset > UINT32_MAX)
		return 0;
	if (parameter)
		probe.point.interval_at = (int64_t)(parameter - vaddr);
	return add_probe(probes, &probe);
}

static int add_tcmalloc(struct image *image, const struct symtab *symtab,
			struct sampler_probes *probes)
{
	const struct symbol *slow = symtab_find(symtab, RECORD_SLOW);
	const struct symbol *sampled = symtab_find(symtab, SAMPLED);
	const struct symbol *delete = symtab_find(symtab, SPAN_DELETE);
	struct sampler_point point = {.flags = is_all_allocator(image) ? SAMPLER_OWN_IMAGE : 0};
	uint64_t parameter, block = 0;
	struct callers callers;
	struct callee callee;
	int err;

	if (!slow)
		return 0;
	err = find_callee(image, RECORD_SLOW, slow->start, &callee);
	if (!err)
		err = find_callers(image, &callee, &callers);
	/* libtcmalloc_minimal has the function, and nobody who calls it. */
	if (err || !callers.count)
		return err;
	parameter = find_variable(image, PARAMETER);
	if (sampled)
		block = sampled->start;
	else if (!callers.contradict && 2 * callers.agreeing > callers.count)
		block = callers.target;
	probes->has_countdown = true;
	probes->has_blocks = block && delete &&parameter;
	if (probes->has_blocks) {
		/* Frees first: what is counted must not be freed unseen. */
		point.kind = PROBE_SPAN_FREE;
		err = add_function(image, probes, "PageHeap::Delete", delete->start, 0, &point);
		point.kind = PROBE_SAMPLED;
		if (!err)
			err = add_function(image, probes, "DoSampledAllocation", block, parameter,
					   &point);
		point.flags |= SAMPLER_BLOCK_PROBED;
	}
	point.kind = PROBE_COUNTDOWN;
	return err ? err
		   : add_function(image, probes, "Sampler::RecordAllocationSlow", slow->start,
				  parameter, &point);
}

/* names: the image itself, or its debug file. */
static int add_jemalloc(struct image *image, struct image *names, const struct symtab *symtab,
			struct sampler_probes *probes)
{
	struct sampler_point point = {.flags = is_all_allocator(image) ? SAMPLER_OWN_IMAGE : 0};
	struct jemalloc_sampler sampler;
	uint64_t interval;
	int err;

	if (!jemalloc_sampler_find(image, symtab, &sampler))
		return 0;
	interval = find_variable(names, sampler.interval);
	if (!interval)
		return 0;
	probes->has_jemalloc = true;
	/* Each before the one that is of no use without it. */
	point.kind = PROBE_OBJECT_FREED;
	err = add_function(image, probes, "prof_free_sampled_object", sampler.object_freed, 0,
			   &point);
	point.kind = PROBE_EXTENT_LEAVES;
	if (!err)
		err = add_function(image, probes, "prof_recent_alloc_reset", sampler.extent_leaves,
				   0, &point);
	point.kind = PROBE_EXTENT_SAMPLED;
	if (!err)
		err = add_function(image, probes, "large_prof_info_set", sampler.extent_sampled, 0,
				   &point);
	point.kind = PROBE_OBJECT_SAMPLED;
	return err ? err
		   : add_function(image, probes, "prof_malloc_sample_object",
				  sampler.object_sampled, interval, &point);
}

static int add_jemalloc_by_debug_file(struct image *image, struct locator *locator,
				      struct sampler_probes *probes)
{
	struct image *debug CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int err = locate_debug_file(locator, image, &debug);

	if (!err)
		err = symtab_load(debug, &symtab);
	if (err)
		return err == -ENOMEM ? err : 0;
	return add_jemalloc(image, debug, symtab, probes);
}

int sampler_probes_find(struct image *image, struct locator *locator, bool markers_only,
			struct sampler_probes *ret)
{
	struct sampler_probes probes CLEANUP(sampler_probes) = {};
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int err = add_markers(image, &probes);

	if (!err && !markers_only) {
		err = symtab_load(image, &symtab);
		if (!err)
			err = add_tcmalloc(image, symtab, &probes);
		if (!err)
			err = add_jemalloc(image, image, symtab, &probes);
		/* Without symbols. */
		if (!symtab && err != -ENOMEM)
			err = 0;
		if (!err && locator && !probes.has_jemalloc)
			err = add_jemalloc_by_debug_file(image, locator, &probes);
	}
	if (err)
		return err;
	*ret = probes;
	probes = (struct sampler_probes){};
	return 0;
}

bool sampler_probes_know_frees(const struct sampler_probes *probes, bool has_interval)
{
	return (!probes->tells_allocs || probes->tells_frees) &&
	       (!probes->has_countdown || (probes->has_blocks && has_interval));
}

uint64_t sampler_interval_parse(const char *text)
{
	long long value = text ? strtoll(text, NULL, 10) : 0;

	return value > 0 ? value : 0;
}
