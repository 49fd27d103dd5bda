/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Any bytes as an ELF file with MiniDebugInfo and a link to a debug file. Its compressed symbols
 * are taken for those of the file itself, and so are the file's own.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/debuginfo.h"
#include "elf/minidebug.h"
#include "elf/symtab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct debuginfo *debuginfo CLEANUP(debuginfo) = NULL;
	struct image *image CLEANUP(image) = NULL;
	struct image *mini CLEANUP(image) = NULL;
	struct image *debug CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct image *others[2];
	size_t count = 0;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	if (image_open(fd, "/nowhere/fuzz", &image) || debuginfo_new(NULL, 0, &debuginfo))
		return 0;
	debuginfo_find(debuginfo, image, -1, false, &debug);
	if (!minidebug_open(image, &mini))
		others[count++] = mini;
	others[count++] = image;
	if (symtab_load_names(image, others, count, &symtab))
		return 0;
	for (uint64_t vaddr = 0; vaddr < 0x3000; vaddr += 8)
		symtab_lookup(symtab, vaddr);
	return 0;
}
