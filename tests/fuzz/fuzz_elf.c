/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Any bytes as an ELF file: image, runtimes, symbols, probe points and samplers, with the bytes as
 * memory, too.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/image.h"
#include "elf/symtab.h"
#include "probe/linkage.h"
#include "probe/points.h"
#include "probe/runtimes.h"
#include "probe/samplers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find_points(struct image *image, int memory_fd, uint64_t bias)
{
	struct linkage *linkage CLEANUP(linkage) = NULL;
	struct probe_points *points CLEANUP(probe_points) = NULL;

	/* Twice: what one file calls by name, the other may define. */
	if (!linkage_new(memory_fd, "je_", &linkage) && !linkage_add(linkage, image, bias) &&
	    !linkage_add(linkage, image, bias))
		probe_points_find(linkage, &(struct points_options){}, &points);
}

static int no_variable(void *arg, const char *name, char *value, size_t size)
{
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runtimes *runtimes CLEANUP(runtimes) = NULL;
	struct image *image CLEANUP(image) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct sampler_probes samplers CLEANUP(sampler_probes) = {};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	if (image_open(fd, "fuzz", &image))
		return 0;
	if (!runtimes_new(no_variable, NULL, &runtimes))
		runtimes_note_image(runtimes, image);
	sampler_probes_find(image, NULL, false, &samplers);
	find_points(image, -1, LINKAGE_NOT_LOADED);
	find_points(image, image_fd(image), 0);
	if (symtab_load(image, &symtab))
		return 0;
	for (uint64_t offset = 0; offset < size; offset += 32) {
		uint64_t vaddr;

		if (!image_offset_to_vaddr(image, offset, &vaddr))
			symtab_lookup(symtab, vaddr);
	}
	return 0;
}
