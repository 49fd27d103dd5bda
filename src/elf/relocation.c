/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/relocation.h"

#include <elf.h>
#include <string.h>

/* Newer than the headers of Debian 12: instructions with REX2 and EVEX prefixes. */
enum {
	CODE_4_GOTPCRELX = 43,
	CODE_4_GOTTPOFF,
	CODE_4_GOTPC32_TLSDESC,
	CODE_5_GOTPCRELX,
	CODE_5_GOTTPOFF,
	CODE_5_GOTPC32_TLSDESC,
	CODE_6_GOTPCRELX,
	CODE_6_GOTTPOFF,
	CODE_6_GOTPC32_TLSDESC,
};

/* Bytes of an instruction before the field, where linkers replace the instruction. */
static uint64_t bytes_before(uint32_t type)
{
	switch (type) {
	case R_X86_64_GOTPCRELX:
		return 2; /* opcode, ModRM */
	case R_X86_64_GOTPCREL:
	case R_X86_64_REX_GOTPCRELX:
	case R_X86_64_GOTTPOFF:
	case R_X86_64_GOTPC32_TLSDESC:
	case R_X86_64_TLSLD: /* lea x@tlsld(%rip), %rdi */
		return 3;    /* and REX */
	case R_X86_64_TLSGD: /* data16 lea x@tlsgd(%rip), %rdi */
	case CODE_4_GOTPCRELX:
	case CODE_4_GOTTPOFF:
	case CODE_4_GOTPC32_TLSDESC:
		return 4;
	case CODE_5_GOTPCRELX:
	case CODE_5_GOTTPOFF:
	case CODE_5_GOTPC32_TLSDESC:
		return 5;
	case CODE_6_GOTPCRELX:
	case CODE_6_GOTTPOFF:
	case CODE_6_GOTPC32_TLSDESC:
		return 6;
	default:
		return 0;
	}
}

/* The call of __tls_get_addr() that follows a lea. */
static uint64_t tls_call_size(uint32_t type, const uint8_t *call, uint64_t size)
{
	/* The large model: movabs $f@pltoff, %rax (10); add %rbx, %rax (3); call *%rax (2) */
	if (size >= 2 && call[0] == 0x48 && call[1] == 0xb8)
		return 15;
	/* With two to three bytes of prefixes: a call in 8 bytes. */
	if (type == R_X86_64_TLSGD)
		return 8;
	/* call *f@gotpcrel(%rip) or call f@plt */
	return size && call[0] == 0xff ? 6 : 5;
}

static uint64_t field_bytes(uint32_t type)
{
	switch (type) {
	case R_X86_64_NONE:
		return 0;
	case R_X86_64_8:
	case R_X86_64_PC8:
		return 1;
	case R_X86_64_16:
	case R_X86_64_PC16:
		return 2;
	case R_X86_64_64:
	case R_X86_64_PC64:
	case R_X86_64_DTPMOD64:
	case R_X86_64_DTPOFF64:
	case R_X86_64_TPOFF64:
	case R_X86_64_GOTOFF64:
	case R_X86_64_GOT64:
	case R_X86_64_GOTPCREL64:
	case R_X86_64_GOTPC64:
	case R_X86_64_GOTPLT64:
	case R_X86_64_PLTOFF64:
	case R_X86_64_SIZE64:
		return 8;
	case R_X86_64_TLSDESC_CALL:
		/* A mark: call *(%rax), in x32 with a prefix. */
		return 3;
	default:
		return 4;
	}
}

struct relocation_span relocation_writes(uint32_t type, const uint8_t *bytes, uint64_t size,
					 uint64_t offset)
{
	struct relocation_span span = {offset, offset};
	uint64_t after = field_bytes(type), before = bytes_before(type);

	if (offset >= size)
		return span;
	if (type == R_X86_64_TLSDESC_CALL && bytes[offset] == 0xff)
		after = 2;
	if ((type == R_X86_64_TLSGD || type == R_X86_64_TLSLD) && size - offset > after)
		after += tls_call_size(type, bytes + offset + after, size - offset - after);
	span.start -= before < offset ? before : offset;
	span.end += after < size - offset ? after : size - offset;
	return span;
}

enum relocation_kind relocation_kind(uint32_t type)
{
	switch (type) {
	case R_X86_64_PC32:
		return RELOCATION_PC;
	case R_X86_64_PLT32:
		return RELOCATION_CALL;
	case R_X86_64_32:
		return RELOCATION_ABS;
	case R_X86_64_32S:
		return RELOCATION_ABS_SIGNED;
	case R_X86_64_64:
		return RELOCATION_ABS_64;
	default:
		return RELOCATION_OPAQUE;
	}
}

size_t relocation_field_size(enum relocation_kind kind)
{
	return kind == RELOCATION_OPAQUE ? 0 : kind == RELOCATION_ABS_64 ? 8 : 4;
}

uint64_t relocation_target(enum relocation_kind kind, const uint8_t *field, uint64_t vaddr,
			   int64_t addend)
{
	uint64_t value = 0;

	memcpy(&value, field, relocation_field_size(kind));
	if (kind == RELOCATION_PC || kind == RELOCATION_CALL || kind == RELOCATION_ABS_SIGNED)
		value = (uint64_t)(int64_t)(int32_t)value;
	if (kind == RELOCATION_PC || kind == RELOCATION_CALL)
		value += vaddr;
	return value - (uint64_t)addend;
}
