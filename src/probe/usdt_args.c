/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/usdt_args.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* By number, as the instruction encoding has them. */
static const char *const register_names[16][4] = {
	{"rax", "eax", "ax", "al"},	 {"rcx", "ecx", "cx", "cl"},
	{"rdx", "edx", "dx", "dl"},	 {"rbx", "ebx", "bx", "bl"},
	{"rsp", "esp", "sp", "spl"},	 {"rbp", "ebp", "bp", "bpl"},
	{"rsi", "esi", "si", "sil"},	 {"rdi", "edi", "di", "dil"},
	{"r8", "r8d", "r8w", "r8b"},	 {"r9", "r9d", "r9w", "r9b"},
	{"r10", "r10d", "r10w", "r10b"}, {"r11", "r11d", "r11w", "r11b"},
	{"r12", "r12d", "r12w", "r12b"}, {"r13", "r13d", "r13w", "r13b"},
	{"r14", "r14d", "r14w", "r14b"}, {"r15", "r15d", "r15w", "r15b"},
};

/* "%rax"; SAMPLER_NO_REGISTER for anything else. */
static unsigned int parse_register(const char **at)
{
	const char *name = *at + 1;
	size_t length = 0;

	if (**at != '%')
		return SAMPLER_NO_REGISTER;
	while (isalnum((unsigned char)name[length]))
		length++;
	for (unsigned int number = 0; number < 16; number++) {
		for (size_t form = 0; form < 4; form++) {
			const char *known = register_names[number][form];

			if (strlen(known) == length && !memcmp(known, name, length)) {
				*at = name + length;
				return number;
			}
		}
	}
	return SAMPLER_NO_REGISTER;
}

static int parse_number(const char **at, long long *ret)
{
	char *end;

	if (!isdigit((unsigned char)**at) && !(**at == '-' && isdigit((unsigned char)(*at)[1])))
		return -EINVAL;
	errno = 0;
	*ret = strtoll(*at, &end, 0);
	if (errno)
		return -EINVAL;
	*at = end;
	return 0;
}

/* What is in brackets: "(%base)", "(%base,%index)", "(,%index,4)" and so on. */
static int parse_address(const char **at, struct sampler_arg *arg)
{
	long long scale = 1;

	++*at;
	if (**at != ',') {
		arg->base = parse_register(at);
		if (arg->base == SAMPLER_NO_REGISTER)
			return -EINVAL;
	}
	if (**at == ',') {
		++*at;
		arg->index = parse_register(at);
		if (arg->index == SAMPLER_NO_REGISTER)
			return -EINVAL;
		if (**at == ',') {
			++*at;
			if (parse_number(at, &scale))
				return -EINVAL;
		}
	}
	if (scale != 1 && scale != 2 && scale != 4 && scale != 8)
		return -EINVAL;
	arg->shift = scale == 8 ? 3 : scale / 2;
	return *(*at)++ == ')' ? 0 : -EINVAL;
}

static int parse_operand(const char **at, struct sampler_arg *arg)
{
	long long number = 0;

	arg->base = arg->index = SAMPLER_NO_REGISTER;
	if (**at == '%') {
		arg->kind = SAMPLER_ARG_REGISTER;
		arg->base = parse_register(at);
		return arg->base == SAMPLER_NO_REGISTER ? -EINVAL : 0;
	}
	if (**at == '$') {
		++*at;
		arg->kind = SAMPLER_ARG_CONSTANT;
		if (parse_number(at, &number))
			return -EINVAL;
		arg->value = number;
		return 0;
	}
	arg->kind = SAMPLER_ARG_MEMORY;
	if (**at != '(' && parse_number(at, &number))
		return -EINVAL;
	arg->value = number;
	return **at == '(' ? parse_address(at, arg) : -EINVAL;
}

static int parse_size(const char **at, struct sampler_arg *arg)
{
	long long size;

	if (parse_number(at, &size) || *(*at)++ != '@')
		return -EINVAL;
	arg->is_signed = size < 0;
	if (size < 0)
		size = -size;
	if (size != 1 && size != 2 && size != 4 && size != 8)
		return -EINVAL;
	arg->size = size;
	return 0;
}

int usdt_args_parse(const char *text, struct sampler_arg *args, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct sampler_arg arg = {};

		text += strspn(text, " ");
		if (!*text)
			return -ENOENT;
		if (parse_size(&text, &arg) || parse_operand(&text, &arg) ||
		    (*text && *text != ' '))
			return -EINVAL;
		args[i] = arg;
	}
	return 0;
}
