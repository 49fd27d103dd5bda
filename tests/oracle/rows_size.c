/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* rows_size FILE...: rows, their share of the code, and the time it takes to build them. */
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <time.h>

#include "elf/image.h"
#include "elf/symtab.h"
#include "unwind/rows.h"

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static double code_mb(struct image *image)
{
	Elf_Scn *section = NULL;
	double bytes = 0;
	GElf_Shdr header;

	while ((section = elf_nextscn(image_elf(image), section))) {
		if (gelf_getshdr(section, &header) && header.sh_flags & SHF_EXECINSTR)
			bytes += header.sh_size;
	}
	return bytes / (1 << 20);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct unwind_rows *rows CLEANUP(unwind_rows) = NULL;
		struct symtab *symtab CLEANUP(symtab) = NULL;
		struct image *image CLEANUP(image) = NULL;
		int fd = open(argv[i], O_RDONLY | O_CLOEXEC);
		double start = now_ms(), built;

		if (fd < 0 || image_open(fd, argv[i], &image))
			continue;
		symtab_load(image, &symtab);
		if (unwind_rows_build(image, symtab, false, &rows))
			continue;
		built = now_ms();
		printf("  %-48s %8zu rows %7.4f MB per MB %8.1f ms\n", argv[i], rows->count,
		       rows->count * sizeof(struct unwind_row) / 1048576.0 / code_mb(image),
		       built - start);
	}
	return 0;
}
