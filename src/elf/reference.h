/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Instructions that name an address relative to their own end, found without disassembling: every
 * byte is tried as an opcode. What only looks like one leads somewhere by chance.
 */
#ifndef HEAPTAP_ELF_REFERENCE_H
#define HEAPTAP_ELF_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of a lea, the longest. */
#define REFERENCE_MAX_SIZE 7

struct reference {
	uint64_t end; /* of the instruction */
	uint64_t to;
};

/* The bytes of an opcode that a 32-bit displacement follows, or 0. Reads up to 3 bytes. */
static inline size_t reference_opcode_size(const uint8_t *bytes, bool jumps)
{
	/* call rel32: e8; lea reg,[rip + disp32]: REX.W 8d, ModRM 00 reg 101 */
	if (bytes[0] == 0xe8)
		return 1;
	if ((bytes[0] & 0xfb) == 0x48 && bytes[1] == 0x8d && (bytes[2] & 0xc7) == 0x05)
		return 3;
	/* jmp rel32: e9; jcc rel32: 0f 8x */
	if (jumps && bytes[0] == 0xe9)
		return 1;
	return jumps && bytes[0] == 0x0f && (bytes[1] & 0xf0) == 0x80 ? 2 : 0;
}

/* The one that begins with the first of some bytes, at an address; `jumps` are wanted, too. */
static inline bool reference_decode(const uint8_t *bytes, size_t size, uint64_t vaddr, bool jumps,
				    struct reference *ret)
{
	size_t opcode_size = size < 5 ? 0 : reference_opcode_size(bytes, jumps);
	int32_t distance;

	if (!opcode_size || opcode_size + sizeof(distance) > size)
		return false;
	memcpy(&distance, bytes + opcode_size, sizeof(distance));
	ret->end = vaddr + opcode_size + sizeof(distance);
	ret->to = ret->end + (uint64_t)(int64_t)distance;
	return true;
}

#endif
