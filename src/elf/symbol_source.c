/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "elf/symbol_source.h"

#include <errno.h>
#include <gelf.h>
#include <stdbool.h>

#include "elf/minidebug.h"

/* Whether a table of a type defines a function. */
static bool has_functions(Elf *elf, uint32_t type)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(elf, scn))) {
		Elf_Data *data;
		GElf_Sym symbol;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != type)
			continue;
		data = elf_getdata(scn, NULL);
		for (int i = 1; data && gelf_getsym(data, i, &symbol); i++)
			if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC &&
			    symbol.st_shndx != SHN_UNDEF)
				return true;
	}
	return false;
}

int symbol_source_find(struct image *image, struct debuginfo *debuginfo, int root_fd,
		       enum symbol_source *ret)
{
	struct image *other CLEANUP(image) = NULL;
	int err;

	if (has_functions(image_elf(image), SHT_SYMTAB)) {
		*ret = SYMBOL_SOURCE_OWN;
		return 0;
	}
	err = debuginfo_find(debuginfo, image, root_fd, false, &other);
	if (err == -ENOMEM)
		return err;
	if (!err) {
		*ret = SYMBOL_SOURCE_DEBUG;
		return 0;
	}
	err = minidebug_open(image, &other);
	if (err == -ENOMEM)
		return err;
	if (!err)
		*ret = SYMBOL_SOURCE_MINIDEBUG;
	else
		*ret = has_functions(image_elf(image), SHT_DYNSYM) ? SYMBOL_SOURCE_DYNAMIC
								   : SYMBOL_SOURCE_NONE;
	return 0;
}
