/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a static linker makes of the code at a relocation: which bytes it may write, and where the
 * code then points. Types and rewrites: x86-64 psABI, 4.4 "Relocation", B "Linker Optimization" and
 * 11.1 of the ELF handling of thread-local storage.
 */
#ifndef HEAPTAP_ELF_RELOCATION_H
#define HEAPTAP_ELF_RELOCATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes at [start, end) of a section. */
struct relocation_span {
	uint64_t start;
	uint64_t end;
};

/*
 * The bytes that a linker may write for a relocation of this type at an offset: its field, and the
 * whole instructions that linkers replace by cheaper ones. Within the section; may be empty.
 */
struct relocation_span relocation_writes(uint32_t type, const uint8_t *bytes, uint64_t size,
					 uint64_t offset);

/* How the field of a relocation tells the address of its symbol. */
enum relocation_kind {
	RELOCATION_OPAQUE, /* it does not, or may have been rewritten */
	RELOCATION_PC,	   /* relative to its place */
	RELOCATION_CALL,   /* the same, but may lead to a stub */
	RELOCATION_ABS,	   /* zero-extended */
	RELOCATION_ABS_SIGNED,
	RELOCATION_ABS_64,
};

enum relocation_kind relocation_kind(uint32_t type);
/* Bytes of the field; 0 if the kind is opaque. */
size_t relocation_field_size(enum relocation_kind kind);

/* The symbol's address, from the field as it is in an image, at virtual address vaddr. */
uint64_t relocation_target(enum relocation_kind kind, const uint8_t *field, uint64_t vaddr,
			   int64_t addend);

#endif
