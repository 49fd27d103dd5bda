/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/section.h"

#include <string.h>

Elf_Scn *section_find(Elf *elf, const char *wanted, GElf_Shdr *ret)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name =
			gelf_getshdr(scn, ret) ? elf_strptr(elf, names, ret->sh_name) : NULL;

		if (name && !strcmp(name, wanted))
			return scn;
	}
	return NULL;
}
