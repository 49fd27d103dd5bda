/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Messages for the user, on standard error. Only commands and the session call these: code under
 * a stage folder returns an error, and the one caller that knows the user's words logs it once.
 */
#ifndef HEAPTAP_UTIL_LOG_H
#define HEAPTAP_UTIL_LOG_H

enum log_level {
	LOG_QUIET,  /* -q: errors and warnings only */
	LOG_NORMAL, /* also what the session does */
	LOG_VERBOSE /* -v: also why it does so */
};

void log_set_level(enum log_level level);

/*
 * Prints "heaptap: MESSAGE: STRERROR", without the last part if err is 0. err is an errno,
 * negative or positive. Returns err as a negative errno (-EINVAL for 0), so that a caller can
 * write `return log_error(err, ...)`.
 */
int log_error(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));

void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_verbose(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Shows what takes long in one line of a terminal, in place of the last such line; NULL clears it.
 * Nothing happens if standard error is no terminal.
 */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
