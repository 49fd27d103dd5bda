/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Makes one allocation of the test program fail: the one that failing_malloc_countdown counts down
 * to. Include it in one file of a program. Sanitizers have allocators of their own: no failure
 * then.
 */
#ifndef TESTS_FAILING_MALLOC_H
#define TESTS_FAILING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define FAILING_MALLOC_WORKS 0
#else
#define FAILING_MALLOC_WORKS 1

static long failing_malloc_countdown;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *old, size_t size);

static bool fails_now(void)
{
	if (!failing_malloc_countdown || --failing_malloc_countdown)
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails_now() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	return fails_now() ? NULL : __libc_realloc(old, size);
}
#endif

#endif
