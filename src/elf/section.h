/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sections by name. */
#ifndef HEAPTAP_ELF_SECTION_H
#define HEAPTAP_ELF_SECTION_H

#include <gelf.h>

/* The first section of that name, and its header; NULL if there is none. */
Elf_Scn *section_find(Elf *elf, const char *wanted, GElf_Shdr *ret);

#endif
