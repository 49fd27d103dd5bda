/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The stubs through which an image calls other images' functions. */
#ifndef HEAPTAP_ELF_PLT_H
#define HEAPTAP_ELF_PLT_H

#include <stddef.h>
#include <stdint.h>
#include <libelf.h>

struct plt_stub {
	uint64_t start; /* virtual address */
	uint64_t size;
	const char *name;  /* of the function it calls; NULL: known by its resolver only */
	uint64_t resolver; /* address of the ifunc resolver, if name is NULL */
};

struct plt {
	struct plt_stub *stubs; /* in no order */
	size_t count;
};

/*
 * Finds the stubs in the sections .plt, .plt.sec and .plt.got. Names are owned by the Elf. The
 * caller frees ret->stubs. Returns 0, also if there are none, or -ENOMEM.
 */
int plt_find(Elf *elf, struct plt *ret);

#endif
