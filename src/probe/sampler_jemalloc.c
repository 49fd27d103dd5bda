/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * jemalloc's functions are hidden, so only .symtab names them. They are global within the library:
 * a compiler that changed what one takes would have to give it another name (.constprop, .isra).
 * Other versions have functions of these names with fewer arguments; so the last argument must be
 * seen to be used.
 */
#include "probe/sampler_jemalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <Zydis/Zydis.h>

/* lg_prof_sample of jemalloc 5.3: 512 KiB. */
#define DEFAULT_LOG2 19

/* Instructions of a function's beginning, and the bytes that as many take at most. */
#define LOOK_WITHIN 48
#define LOOK_BYTES  (LOOK_WITHIN * ZYDIS_MAX_INSTRUCTION_LENGTH)

/* --with-private-namespace: none, none with --with-jemalloc-prefix, and that of Rust's crate. */
static const struct {
	const char *functions;
	const char *interval;
} builds[] = {
	{"je_", "je_lg_prof_sample"},
	{"_rjem_je_", "_rjem_je_lg_prof_sample"},
	{"", "lg_prof_sample"},
};

static bool is_register(ZydisRegister value, ZydisRegister wanted)
{
	return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, value) == wanted;
}

enum usage { USAGE_NONE, USAGE_READ, USAGE_WRITTEN };

static enum usage usage_of(const ZydisDecodedInstruction *insn, const ZydisDecodedOperand *operands,
			   ZydisRegister wanted)
{
	enum usage usage = USAGE_NONE;

	/* xor of a register with itself reads nothing. */
	if (insn->mnemonic == ZYDIS_MNEMONIC_XOR &&
	    operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    operands[0].reg.value == operands[1].reg.value)
		return is_register(operands[0].reg.value, wanted) ? USAGE_WRITTEN : USAGE_NONE;
	for (int i = 0; i < insn->operand_count; i++) {
		const ZydisDecodedOperand *operand = &operands[i];

		if (operand->type == ZYDIS_OPERAND_TYPE_MEMORY &&
		    (is_register(operand->mem.base, wanted) ||
		     is_register(operand->mem.index, wanted)))
			return USAGE_READ;
		if (operand->type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    !is_register(operand->reg.value, wanted))
			continue;
		if (operand->actions & ZYDIS_OPERAND_ACTION_MASK_READ)
			return USAGE_READ;
		usage = USAGE_WRITTEN;
	}
	return usage;
}

/* Whether a function reads an argument before it writes to its register or calls another one. */
static bool reads_argument(struct image *image, uint64_t vaddr, ZydisRegister wanted)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	size_t size = 0, at = 0;
	const uint8_t *bytes = image_bytes(image, vaddr, LOOK_BYTES, &size);

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (int i = 0; bytes && i < LOOK_WITHIN; i++) {
		enum usage usage;

		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes + at, size - at, &insn,
							 operands)))
			return false;
		usage = usage_of(&insn, operands, wanted);
		if (usage != USAGE_NONE)
			return usage == USAGE_READ;
		if (insn.meta.category == ZYDIS_CATEGORY_CALL ||
		    insn.meta.category == ZYDIS_CATEGORY_RET ||
		    insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR)
			return false;
		at += insn.length;
	}
	return false;
}

static bool find_function(struct image *image, const struct symtab *symtab, const char *prefix,
			  const char *name, ZydisRegister last_argument, uint64_t *ret)
{
	const struct symbol *symbol;
	char text[64];

	snprintf(text, sizeof(text), "%s%s", prefix, name);
	symbol = symtab_find(symtab, text);
	if (!symbol || symbol->ifunc || !reads_argument(image, symbol->start, last_argument))
		return false;
	*ret = symbol->start;
	return true;
}

bool jemalloc_sampler_find(struct image *image, const struct symtab *symtab,
			   struct jemalloc_sampler *ret)
{
	for (size_t i = 0; i < sizeof(builds) / sizeof(*builds); i++) {
		const char *prefix = builds[i].functions;
		struct jemalloc_sampler found = {.interval = builds[i].interval};

		/*
		 * (tsd, block, size, usable size, backtrace), (tsd, usable size, information),
		 * (extent, backtrace, size) and (tsd, extent).
		 */
		if (find_function(image, symtab, prefix, "prof_malloc_sample_object",
				  ZYDIS_REGISTER_R8, &found.object_sampled) &&
		    find_function(image, symtab, prefix, "prof_free_sampled_object",
				  ZYDIS_REGISTER_RDX, &found.object_freed) &&
		    find_function(image, symtab, prefix, "large_prof_info_set", ZYDIS_REGISTER_RDX,
				  &found.extent_sampled) &&
		    find_function(image, symtab, prefix, "prof_recent_alloc_reset",
				  ZYDIS_REGISTER_RSI, &found.extent_leaves)) {
			*ret = found;
			return true;
		}
	}
	return false;
}

uint64_t jemalloc_interval_parse(const char *text)
{
	bool on = false, active = true;
	unsigned long log2 = DEFAULT_LOG2;

	while (text && *text) {
		size_t length = strcspn(text, ",");
		unsigned long value;
		char *end;

		if (!strncmp(text, "prof:", 5))
			on = length == 9 && !strncmp(text, "prof:true", 9);
		else if (!strncmp(text, "prof_active:", 12))
			active = length == 16 && !strncmp(text, "prof_active:true", 16);
		else if (!strncmp(text, "lg_prof_sample:", 15)) {
			value = strtoul(text + 15, &end, 0);
			if (end == text + length && end > text + 15)
				log2 = value < 63 ? value : 63;
		}
		text += length;
		text += *text == ',';
	}
	return on && active ? UINT64_C(1) << log2 : 0;
}
