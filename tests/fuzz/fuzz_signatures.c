/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Any bytes as a static library, whose functions are searched for in an image that has the same
 * bytes for its code: so they are found.
 */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "probe/signatures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_wanted(const char *name, void *arg)
{
	return true;
}

/* An image whose only segment is code, and has these bytes. */
static int make_image(const uint8_t *data, size_t size)
{
	const struct {
		Elf64_Ehdr ehdr;
		Elf64_Phdr phdr;
	} headers = {
		.ehdr =
			{
				.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					    ELFDATA2LSB, EV_CURRENT},
				.e_type = ET_EXEC,
				.e_machine = EM_X86_64,
				.e_version = EV_CURRENT,
				.e_phoff = sizeof(Elf64_Ehdr),
				.e_ehsize = sizeof(Elf64_Ehdr),
				.e_phentsize = sizeof(Elf64_Phdr),
				.e_phnum = 1,
			},
		.phdr =
			{
				.p_type = PT_LOAD,
				.p_flags = PF_R | PF_X,
				.p_offset = sizeof(headers),
				.p_vaddr = 0x400000,
				.p_filesz = size,
				.p_memsz = size,
			},
	};
	int fd = memfd_create("image", MFD_CLOEXEC);

	if (fd >= 0 && (write(fd, &headers, sizeof(headers)) != sizeof(headers) ||
			write(fd, data, size) != (ssize_t)size)) {
		close(fd);
		return -1;
	}
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct signatures *signatures CLEANUP(signatures) = NULL;
	struct image *image CLEANUP(image) = NULL;
	struct signature_hits hits = {};
	_cleanup_close_ int fd = memfd_create("library", MFD_CLOEXEC);
	int image_fd = make_image(data, size);
	char path[64];

	if (image_fd < 0 || image_open(image_fd, "image", &image) || fd < 0 ||
	    write(fd, data, size) != (ssize_t)size)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (signatures_load(path, is_wanted, NULL, &signatures) ||
	    signatures_find(signatures, image, &hits))
		return 0;
	signature_hits_fini(&hits);
	return 0;
}
