/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fixed-width types of the kernel/user contract. A header stands in this folder if and only
 * if both bpf/ and src/ include it; none of them defines a map.
 */
#ifndef HEAPTAP_TYPES_H
#define HEAPTAP_TYPES_H

#ifdef __bpf__
#include "vmlinux.h"
#else
#include <linux/types.h>
#endif

#endif
