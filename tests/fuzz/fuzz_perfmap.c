/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any bytes as the file of a JIT compiler. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbolize/perfmap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perfmap *perfmap CLEANUP(perfmap) = NULL;
	_cleanup_close_ int fd = memfd_create("fuzz", MFD_CLOEXEC);
	size_t half = size / 2;

	if (fd < 0 || perfmap_new(&perfmap))
		return 0;
	/* It grows while it is read. */
	if (write(fd, data, half) != (ssize_t)half || perfmap_read(perfmap, fd) ||
	    write(fd, data + half, size - half) != (ssize_t)(size - half) ||
	    perfmap_read(perfmap, fd))
		return 0;
	for (uint64_t address = 0; address < 0x2000; address += 8) {
		const char *name = perfmap_lookup(perfmap, address);

		if (name && !strlen(name))
			__builtin_trap();
	}
	return 0;
}
