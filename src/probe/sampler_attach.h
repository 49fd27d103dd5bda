/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Puts the programs for allocators that sample by themselves on an image's places. */
#ifndef HEAPTAP_PROBE_SAMPLER_ATTACH_H
#define HEAPTAP_PROBE_SAMPLER_ATTACH_H

#include "probe/attach.h"
#include "probe/samplers.h"

/*
 * fd is the image's file. The point of entries[i] has the index first + i in the kernel's map, and
 * is there already. Frees are attached first. Returns 0 or a negative errno.
 */
int sampler_attach(struct attach *attach, const struct attach_programs *programs, bool session,
		   int fd, const struct sampler_probes *probes, uint32_t first);

#endif
