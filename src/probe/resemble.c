/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/resemble.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#define CHUNK_SIZE (1u << 20)
/* Longer than any mark. */
#define CHUNK_OVERLAP 64u
/* An image of more is not looked through to its end. */
#define SCAN_MAX_BYTES (2ull << 30)

#define LIB64	"/usr/lib64/"
#define DEBIAN	"/usr/lib/x86_64-linux-gnu/"
#define MARK(m) m, sizeof(m) - 1

/* Allocators first that a program may have instead of its C library's. */
static const struct resemble_allocator allocators[] = {
	{"Go's heap", MARK("\xff Go buildinf:"), {}},
	{"jemalloc",
	 MARK("<jemalloc>: "),
	 {DEBIAN "libjemalloc.a", LIB64 "libjemalloc.a", "/usr/local/lib/libjemalloc.a"}},
	{"mimalloc",
	 MARK("mimalloc: "),
	 {"/usr/local/lib/libmimalloc.a", DEBIAN "libmimalloc.a", LIB64 "libmimalloc.a"}},
	{"tcmalloc",
	 MARK("tcmalloc: allocation failed"),
	 {DEBIAN "libtcmalloc.a", DEBIAN "libtcmalloc_minimal.a", LIB64 "libtcmalloc.a"}},
	{"scudo",
	 MARK("Scudo ERROR"),
	 {"/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/"
	  "libclang_rt.scudo_standalone-x86_64.a"}},
	{"glibc's malloc",
	 MARK("malloc(): corrupted top size"),
	 {DEBIAN "libc.a", LIB64 "libc.a", "/usr/lib/libc.a"}},
	{"glibc's malloc",
	 MARK("<malloc version="),
	 {DEBIAN "libc.a", LIB64 "libc.a", "/usr/lib/libc.a"}},
	/* cmp $MMAP_THRESHOLD - 1, %rdi: 131052 = 0x1ffec; as in musl 1.2.1 and later */
	{"musl's malloc",
	 MARK("\x48\x81\xff\xeb\xff\x01\x00"),
	 {"/usr/lib/x86_64-linux-musl/libc.a", "/usr/lib/musl/lib/libc.a", "/usr/lib/libc.a"}},
};

/* The first allocator whose mark is in there, or `best`, the best so far. */
static size_t scan_bytes(const uint8_t *bytes, size_t size, size_t best)
{
	for (size_t i = 0; i < best; i++)
		if (memmem(bytes, size, allocators[i].mark, allocators[i].mark_size))
			return i;
	return best;
}

static size_t scan_segment(const struct image *image, const GElf_Phdr *phdr, uint8_t *buffer,
			   uint64_t *left, size_t best)
{
	uint64_t offset = phdr->p_offset, size = phdr->p_filesz;
	size_t kept = 0;

	while (size && *left) {
		size_t wanted = size < CHUNK_SIZE ? size : CHUNK_SIZE;
		ssize_t n = pread(image_fd(image), buffer + kept, wanted, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		best = scan_bytes(buffer, kept + n, best);
		offset += n;
		size -= n;
		*left -= (uint64_t)n < *left ? (uint64_t)n : *left;
		/* A mark may lie across two chunks. */
		n += kept;
		kept = n < (ssize_t)CHUNK_OVERLAP ? n : (ssize_t)CHUNK_OVERLAP;
		memmove(buffer, buffer + n - kept, kept);
	}
	return best;
}

const struct resemble_allocator *resemble_image(const struct image *image)
{
	_cleanup_free_ uint8_t *buffer = malloc(CHUNK_OVERLAP + CHUNK_SIZE);
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	size_t best = ARRAY_SIZE(allocators), count;
	uint64_t left = SCAN_MAX_BYTES;

	if (!buffer || !elf || elf_getphdrnum(elf, &count))
		return NULL;
	for (size_t i = 0; i < count && best; i++) {
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf, i, &phdr))
			break;
		/* Go keeps its mark in a segment that is written to. */
		if (phdr.p_type == PT_LOAD)
			best = scan_segment(image, &phdr, buffer, &left, best);
	}
	return best < ARRAY_SIZE(allocators) ? &allocators[best] : NULL;
}

const char *resemble_library(const struct resemble_allocator *allocator)
{
	for (size_t i = 0; i < RESEMBLE_MAX_LIBRARIES && allocator->libraries[i]; i++)
		if (!access(allocator->libraries[i], R_OK))
			return allocator->libraries[i];
	return allocator->libraries[0];
}
