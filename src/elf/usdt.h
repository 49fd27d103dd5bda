/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * USDT probes: places that a program has marked for tracers, in notes of the section .note.stapsdt.
 * Format: SystemTap's wiki, UserSpaceProbeImplementation. A note is three addresses (the place,
 * what .stapsdt.base had for an address when it was linked, the semaphore) and three strings
 * (provider, name, arguments).
 */
#ifndef HEAPTAP_ELF_USDT_H
#define HEAPTAP_ELF_USDT_H

#include <stddef.h>
#include <stdint.h>

#include "elf/image.h"

struct usdt_probe {
	char *name; /* both in one block, owned */
	const char *arguments;
	uint64_t vaddr;
	uint64_t semaphore; /* address of the counter of its tracers, or 0 */
};

struct usdt {
	struct usdt_probe *entries; /* as they stand in the file */
	size_t count;
};

/*
 * The probes of one provider; none if the image has no such notes, or from the first malformed one
 * on. Errors: -ENOMEM.
 */
int usdt_load(struct image *image, const char *provider, struct usdt *ret);
void usdt_fini(struct usdt *usdt);

static inline void cleanup_usdt(struct usdt *usdt)
{
	usdt_fini(usdt);
}

#endif
