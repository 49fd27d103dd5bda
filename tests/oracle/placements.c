/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints the placement of every allocation function that a file defines, aliases included, one on a
 * line: name, file offset of the entry, of the point, and the registers of the pointer, the size
 * and the other argument, "-" for what the function does not have, at the entry and at the point;
 * then "free" or "alloc", a hash of the code that is the same where only addresses differ, and why
 * it is the plain entry, if so. A function of the fixture, "malloc__name", is one like malloc.
 *
 * Usage: placements FILE
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <Zydis/Zydis.h>

#include "elf/image.h"
#include "elf/symtab.h"
#include "probe/placement.h"
#include "../fixtures/functions.h"

/* As points.c has it. */
#define FUNCTION_MAX_SIZE 65536u

static void print_registers(const struct catalog_function *function, unsigned int ptr,
			    unsigned int size, unsigned int aux)
{
	const struct {
		signed char arg;
		unsigned int reg;
	} of[] = {{function->ptr_arg, ptr}, {function->size_arg, size}, {function->aux_arg, aux}};

	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		putchar(i ? ',' : ' ');
		if (of[i].arg == CATALOG_NO_ARG)
			putchar('-');
		else
			printf("%u", of[i].reg);
	}
}

static uint64_t code_hash(const uint8_t *code, size_t size)
{
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	uint64_t hash = 0;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t pos = 0; pos < size; pos += insn.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, code + pos,
								size - pos, &insn)))
			break;
		hash = (hash ^ insn.mnemonic ^ (uint64_t)insn.length << 16 ^
			(uint64_t)insn.raw.modrm.reg << 24 ^ (uint64_t)insn.raw.modrm.rm << 32 ^
			(uint64_t)insn.raw.modrm.mod << 40) *
		       0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	return hash;
}

static int print_placement(const struct symbol *symbol, void *context)
{
	const char *end = strstr(symbol->name, "__");
	const struct catalog_function *function = known_function(
		symbol->name, end ? (size_t)(end - symbol->name) : strlen(symbol->name));
	struct image *image = context;
	struct placement placement;
	const uint8_t *code;
	uint64_t offset;
	size_t size = 0;

	if (!function || symbol->ifunc || image_vaddr_to_offset(image, symbol->start, &offset))
		return 0;
	code = image_bytes(image, symbol->start,
			   symbol->size < FUNCTION_MAX_SIZE ? symbol->size : FUNCTION_MAX_SIZE,
			   &size);
	placement = placement_choose(code, code ? size : 0, function);
	printf("%s %#llx %#llx", symbol->name, (unsigned long long)offset,
	       (unsigned long long)offset + placement.offset);
	print_registers(function, catalog_arg_register(function->ptr_arg),
			catalog_arg_register(function->size_arg),
			catalog_arg_register(function->aux_arg));
	print_registers(function, placement.ptr_reg, placement.size_reg, placement.aux_reg);
	printf(" %s %016llx %s\n", function->kind == PROBE_FREE ? "free" : "alloc",
	       (unsigned long long)code_hash(code, size),
	       placement.why_entry ? placement.why_entry : "");
	return 0;
}

int main(int argc, char **argv)
{
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int fd, err;

	if (argc != 2) {
		fprintf(stderr, "usage: placements FILE\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	err = fd < 0 ? -errno : image_open(fd, argv[1], &image);
	if (!err)
		err = symtab_load(image, &symtab);
	if (err) {
		fprintf(stderr, "placements: %s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	return symtab_for_each(symtab, print_placement, image);
}
