/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any bytes as an ELF file with DWARF: every unit's ranges, functions, inlined calls and lines. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/image.h"
#include "symbolize/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image *image CLEANUP(image) = NULL;
	struct lines *lines CLEANUP(lines) = NULL;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	if (image_open(fd, "/nowhere/fuzz", &image) || lines_open(image, &lines))
		return 0;
	/* The corpus has its code here. */
	for (uint64_t vaddr = 0x1000; vaddr < 0x1000 + 64 * 8; vaddr += 8) {
		const struct line_frame *frames;
		size_t count;

		if (lines_lookup(lines, vaddr, &frames, &count))
			break;
		for (size_t i = 0; i < count; i++) {
			if ((frames[i].name && strlen(frames[i].name) > size) ||
			    (frames[i].filename && !*frames[i].filename))
				abort();
		}
	}
	return 0;
}
