/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why a scope is none, in words for the user. The code that resolves a scope does not print, but
 * an errno cannot tell which of four containers a prefix means.
 */
#ifndef HEAPTAP_PROC_SCOPE_ERROR_H
#define HEAPTAP_PROC_SCOPE_ERROR_H

#include <stdarg.h>
#include <stdio.h>

/*
 * What failed, on what, why, and what to do; without a final line end. Lists of candidates are
 * lines of their own, each begun with two blanks. Control characters of foreign names are
 * replaced.
 */
struct scope_error {
	char text[2048];
};

/* Sets the text and returns err. */
static inline int scope_error_set(struct scope_error *error, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static inline int scope_error_set(struct scope_error *error, int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	for (char *c = error->text; *c; c++)
		if (((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f)
			*c = '?';
	return err;
}

#endif
