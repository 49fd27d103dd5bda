/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The arguments of a USDT probe as its note tells them: where the compiler has left each. They are
 * operands in the assembler's AT&T form, with a size in front: "8@%rax -4@$5 8@16(%rsp)".
 */
#ifndef HEAPTAP_PROBE_USDT_ARGS_H
#define HEAPTAP_PROBE_USDT_ARGS_H

#include <stddef.h>

#include "heaptap/sampler.h"

/*
 * Parses the first `count` of them. Errors: -ENOENT if there are fewer, -EINVAL for one that is
 * malformed or of a form that a probe cannot read: relative to the instruction, or in a vector or
 * segment register.
 */
int usdt_args_parse(const char *text, struct sampler_arg *args, size_t count);

#endif
