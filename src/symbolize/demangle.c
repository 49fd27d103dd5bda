/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Demangling by libiberty, bounded.
 *
 * Names come from the target and substitutions let a short one expand to gigabytes. libiberty
 * hands its output out in pieces but cannot be told to stop: past the bound the callback leaves
 * by longjmp. The C++ and Rust printers keep their state on the stack, so nothing is lost but,
 * with punycode in Rust names, a few bytes.
 */
#include "symbolize/demangle.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <libiberty/demangle.h>

#define NAME_MAX_SIZE	65536u
#define OUTPUT_MAX_SIZE 65536u
/* The D demangler has no callback; its names only grow by back references. */
#define DLANG_MAX_SIZE 1024u

#define OPTIONS (DMGL_PARAMS | DMGL_ANSI)

struct output {
	char *text;
	size_t size;
	size_t capacity;
	jmp_buf stop;
};

static void append(const char *piece, size_t length, void *opaque)
{
	struct output *output = opaque;

	/* piece may be NULL then */
	if (!length)
		return;
	if (length > OUTPUT_MAX_SIZE - output->size)
		longjmp(output->stop, 1);
	if (output->size + length >= output->capacity) {
		size_t capacity = 2 * (output->size + length) + 64;
		char *text = realloc(output->text, capacity);

		if (!text)
			longjmp(output->stop, 1);
		output->text = text;
		output->capacity = capacity;
	}
	memcpy(output->text + output->size, piece, length);
	output->size += length;
	output->text[output->size] = 0;
}

/* The demangled name, or NULL. */
static char *expand(const char *name)
{
	struct output *output = calloc(1, sizeof(*output));
	char *text = NULL;

	if (!output)
		return NULL;
	if (!setjmp(output->stop)) {
		/* Rust first: its older form is a valid C++ name as well. */
		bool done = rust_demangle_callback(name, OPTIONS, append, output);

		if (!done) {
			output->size = 0;
			done = cplus_demangle_v3_callback(name, OPTIONS, append, output);
		}
		if (done && output->size) {
			text = output->text;
			output->text = NULL;
		}
	}
	free(output->text);
	free(output);
	return text;
}

char *demangle(const char *name)
{
	size_t length = strnlen(name, NAME_MAX_SIZE + 1);
	char *text = NULL;

	if (length <= NAME_MAX_SIZE && !strncmp(name, "_Z", 2))
		text = expand(name);
	else if (length <= NAME_MAX_SIZE && !strncmp(name, "_R", 2))
		text = expand(name);
	else if (length <= DLANG_MAX_SIZE && !strncmp(name, "_D", 2))
		text = dlang_demangle(name, OPTIONS);
	return text ? text : strdup(name);
}

/*
 * Where a suffix that compilers put on copies and parts of a function begins: GCC's and LLVM's
 * names for them, each with or without a number. NULL if the name ends in none.
 */
static char *find_suffix(char *name)
{
	static const char *const suffixes[] = {
		"cold", "part", "constprop", "isra", "llvm", "lto_priv", "localalias", "__uniq",
	};
	char *end = name + strlen(name), *dot;

	dot = memrchr(name, '.', end - name);
	if (dot && dot[1] && !dot[1 + strspn(dot + 1, "0123456789")]) {
		end = dot;
		dot = memrchr(name, '.', end - name);
	}
	if (!dot || dot == name)
		return NULL;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		if (strlen(suffixes[i]) == (size_t)(end - dot - 1) &&
		    !strncmp(dot + 1, suffixes[i], end - dot - 1))
			return dot;
	}
	return NULL;
}

char *demangle_function(const char *name)
{
	static const char plt[] = "@plt";
	char *base = strdup(name), *text, *suffix, *both;
	size_t length;
	bool is_plt;

	if (!base)
		return NULL;
	length = strlen(base);
	is_plt = length > strlen(plt) && !strcmp(base + length - strlen(plt), plt);
	if (is_plt)
		base[length - strlen(plt)] = 0;
	while ((suffix = find_suffix(base)))
		*suffix = 0;
	text = demangle(base);
	free(base);
	if (!text || !is_plt)
		return text;
	both = realloc(text, strlen(text) + sizeof(plt));
	if (!both)
		free(text);
	return both ? strcat(both, plt) : NULL;
}
