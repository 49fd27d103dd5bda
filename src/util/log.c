/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "util/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level log_level = LOG_NORMAL;

void log_set_level(enum log_level level)
{
	log_level = level;
}

int log_error(int err, const char *format, ...)
{
	va_list args;

	fputs("heaptap: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	if (err)
		fprintf(stderr, ": %s%s", strerror(abs(err)),
			abs(err) == EMFILE ? " (raise the limit with `ulimit -n`)" : "");
	fputc('\n', stderr);
	return err ? -abs(err) : -EINVAL;
}

void log_warning(const char *format, ...)
{
	va_list args;

	fputs("heaptap: warning: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static void log_at(enum log_level level, const char *format, va_list args)
{
	if (log_level < level)
		return;
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

void log_info(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_at(LOG_NORMAL, format, args);
	va_end(args);
}

void log_verbose(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_at(LOG_VERBOSE, format, args);
	va_end(args);
}

void log_progress(const char *format, ...)
{
	va_list args;

	if (log_level < LOG_NORMAL || !isatty(STDERR_FILENO))
		return;
	fputs("\r\033[K", stderr);
	if (!format)
		return;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
}
