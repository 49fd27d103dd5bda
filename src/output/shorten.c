/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "output/shorten.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#define ANONYMOUS "(anonymous namespace)"

/* The length of an operator's symbol after "operator"; 0 for words, as in "operator new". */
static size_t operator_length(const char *after)
{
	/* Longer ones first. A template's "<" after an operator "<" is set off by a blank. */
	static const char *const symbols[] = {
		"<<=", ">>=", "<=>", "->*", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++",
		"--",  "+=",  "-=",  "*=",  "/=", "%=", "^=", "&=", "|=", "->", "()", "[]", "<",
		">",   "=",   "!",   "+",   "-",  "*",	"/",  "%",  "^",  "&",	"|",  "~",  ",",
	};

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		if (!strncmp(after, symbols[i], strlen(symbols[i])))
			return strlen(symbols[i]);
	}
	return 0;
}

static bool begins_operator(const char *name, const char *at)
{
	static const char word[] = "operator";

	return !strncmp(at, word, sizeof(word) - 1) &&
	       (at == name || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) &&
	       !(isalnum((unsigned char)at[sizeof(word) - 1]) || at[sizeof(word) - 1] == '_');
}

void shorten_name(const char *name, const char *system_name, char *out)
{
	int angles = 0, parens = 0;
	bool named_operator = false;
	char *end = out;

	/* A leading < is Rust's qualified path: "<T as Trait>::method". */
	if (strncmp(system_name, "_Z", 2) || *name == '<') {
		strcpy(out, name);
		return;
	}
	for (const char *c = name; *c; c++) {
		bool outside = !angles && !parens;

		if (outside && begins_operator(name, c)) {
			size_t length = 8 + operator_length(c + 8);

			memcpy(end, c, length);
			end += length;
			c += length - 1;
			/* What follows the space of "operator new" or "operator int" is its name.
			 */
			named_operator = length == 8 && c[1] == ' ';
		} else if (outside && !strncmp(c, ANONYMOUS, sizeof(ANONYMOUS) - 1)) {
			/* Its space is no end of a return type. */
			memcpy(end, "(anonymous)", 11);
			end += 11;
			c += sizeof(ANONYMOUS) - 2;
		} else if (*c == '<' && !parens) {
			angles++;
		} else if (*c == '>' && !parens && angles) {
			angles--;
		} else if (*c == '(' && !angles) {
			parens++;
		} else if (*c == ')' && !angles && parens) {
			parens--;
		} else if (outside && *c == ' ' && c > name && c[-1] == ')') {
			/* " const" and the like, or " [clone .cold]" */
			break;
		} else if (outside && *c == ' ' && !named_operator) {
			if (!strncmp(c, " [clone", 7))
				break;
			/* A return type stood before, unless a template's arguments follow. */
			if (c[1] != '<')
				end = out;
		} else if (outside) {
			*end++ = *c;
		}
	}
	*end = '\0';
	if (!*out)
		strcpy(out, name);
}
