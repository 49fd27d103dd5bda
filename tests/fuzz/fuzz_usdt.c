/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Any text as the arguments of a USDT probe. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "probe/usdt_args.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sampler_arg args[SAMPLER_ARGS] = {};
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (!usdt_args_parse(text, args, SAMPLER_ARGS)) {
		for (int i = 0; i < SAMPLER_ARGS; i++)
			if (args[i].kind == SAMPLER_ARG_NONE || !args[i].size || args[i].size > 8 ||
			    args[i].base > SAMPLER_NO_REGISTER ||
			    args[i].index > SAMPLER_NO_REGISTER || args[i].shift > 3)
				abort();
	}
	free(text);
	return 0;
}
