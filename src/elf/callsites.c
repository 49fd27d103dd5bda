/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Call instructions, and syscall instructions, found without disassembling.
 *
 * Near calls are e8 rel32, and ff with 2 in the reg field of its ModRM byte, which also tells the
 * length; syscall is 0f 05. Every byte is tried as an opcode, so each real call is found whatever
 * precedes it; bytes that only look like calls keep a few rows more than needed. Prefixes stand
 * before the opcode and do not change where the instruction ends.
 */
#include "elf/callsites.h"

#include <emmintrin.h>
#include <errno.h>
#include <string.h>

#define CHUNK_SIZE (1u << 20)
/* Opcode, ModRM, SIB, disp32. */
#define CALL_MAX_SIZE 7u

struct scan {
	uint32_t *lookups;
	size_t count;
	size_t capacity;
};

static size_t indirect_call_size(uint8_t modrm, uint8_t sib)
{
	uint8_t mod = modrm >> 6, rm = modrm & 7;
	size_t size = mod != 3 && rm == 4 ? 3 : 2;

	if (mod == 1)
		return size + 1;
	if (mod == 2 || (mod == 0 && (rm == 5 || (rm == 4 && (sib & 7) == 5))))
		return size + 4;
	return size;
}

/* 0 if the bytes are no call. Reads up to 3 bytes. */
static size_t call_size(const uint8_t *bytes)
{
	if (bytes[0] == 0xe8)
		return 5;
	if (bytes[0] == 0x0f)
		return bytes[1] == 0x05 ? 2 : 0;
	if ((bytes[1] >> 3 & 7) != 2)
		return 0;
	return indirect_call_size(bytes[1], bytes[2]);
}

static int scan_add(struct scan *scan, uint32_t lookup)
{
	size_t at = scan->count;

	if (scan->count == scan->capacity) {
		size_t capacity = scan->capacity ? scan->capacity * 2 : 4096;
		uint32_t *lookups = realloc(scan->lookups, capacity * sizeof(*lookups));

		if (!lookups)
			return -ENOMEM;
		scan->lookups = lookups;
		scan->capacity = capacity;
	}
	/* A long call that starts earlier may end behind a short one. */
	while (at && scan->lookups[at - 1] > lookup)
		at--;
	if (at && scan->lookups[at - 1] == lookup)
		return 0;
	memmove(scan->lookups + at + 1, scan->lookups + at,
		(scan->count - at) * sizeof(*scan->lookups));
	scan->lookups[at] = lookup;
	scan->count++;
	return 0;
}

/* Bit i is set if bytes[i], of 16, is an opcode of interest. */
static unsigned int opcode_mask(const uint8_t *bytes)
{
	__m128i block = _mm_loadu_si128((const __m128i *)bytes);
	__m128i direct = _mm_cmpeq_epi8(block, _mm_set1_epi8((char)0xe8));
	__m128i indirect = _mm_cmpeq_epi8(block, _mm_set1_epi8((char)0xff));
	__m128i two_byte = _mm_cmpeq_epi8(block, _mm_set1_epi8(0x0f));

	return _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(direct, indirect), two_byte));
}

/* Opcodes at bytes[0, size); the 16 + CALL_MAX_SIZE bytes behind must be readable. */
static int scan_chunk(struct scan *scan, const uint8_t *bytes, size_t size, uint64_t offset,
		      uint64_t end)
{
	for (size_t pos = 0; pos < size; pos += 16) {
		unsigned int mask = opcode_mask(bytes + pos);

		for (; mask; mask &= mask - 1) {
			size_t at = pos + __builtin_ctz(mask);
			size_t length = call_size(bytes + at);
			int err;

			if (!length || at >= size || offset + at + length > end)
				continue;
			err = scan_add(scan, (uint32_t)(offset + at + length - 1));
			if (err)
				return err;
		}
	}
	return 0;
}

static int scan_range(struct scan *scan, const struct code *code, uint64_t offset, uint64_t end,
		      uint8_t *buffer)
{
	while (offset < end) {
		size_t size = end - offset < CHUNK_SIZE ? end - offset : CHUNK_SIZE;
		size_t wanted =
			end - offset < size + CALL_MAX_SIZE ? end - offset : size + CALL_MAX_SIZE;
		size_t got = code_read(code, offset, buffer, wanted);
		int err;

		memset(buffer + got, 0, 16 + CALL_MAX_SIZE);
		err = scan_chunk(scan, buffer, got < size ? got : size, offset, end);
		if (err)
			return err;
		if (got < wanted)
			break;
		offset += size;
	}
	return 0;
}

int callsites_scan(const struct code *code, struct callsites *ret)
{
	uint8_t *buffer _cleanup_free_ = malloc(CHUNK_SIZE + CALL_MAX_SIZE + 16 + CALL_MAX_SIZE);
	struct scan scan = {};
	uint64_t done = 0;
	int err = buffer ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < code->count; i++) {
		const struct code_segment *segment = &code->segments[i];
		uint64_t start = segment->offset > done ? segment->offset : done;

		if (segment->offset + segment->size > UINT32_MAX)
			err = -E2BIG;
		/* Segments may share bytes of the file. */
		else if (start < segment->offset + segment->size)
			err = scan_range(&scan, code, start, segment->offset + segment->size,
					 buffer);
		if (segment->offset + segment->size > done)
			done = segment->offset + segment->size;
	}
	if (err) {
		free(scan.lookups);
		scan = (struct scan){};
	}
	*ret = (struct callsites){scan.lookups, scan.count};
	return err;
}

void callsites_fini(struct callsites *callsites)
{
	free(callsites->lookups);
	*callsites = (struct callsites){};
}

bool callsites_any(const struct callsites *callsites, size_t *cursor, uint64_t start, uint64_t end)
{
	while (*cursor < callsites->count && callsites->lookups[*cursor] < start)
		++*cursor;
	return *cursor < callsites->count && callsites->lookups[*cursor] < end;
}
