/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Scope guards: a resource is released when its variable leaves the scope.
 *
 * Ownership leaves a guarded variable only through take_ptr() or take_fd(). A type of our own
 * defines its guard beside its _free function, with DEFINE_CLEANUP().
 */
#ifndef HEAPTAP_UTIL_CLEANUP_H
#define HEAPTAP_UTIL_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Defines _cleanup_<name>_ for variables of pointer type `type`; `func` must accept NULL. */
#define DEFINE_CLEANUP(name, type, func)                                                           \
	static inline void cleanup_##name(type *p)                                                 \
	{                                                                                          \
		func(*p);                                                                          \
	}

#define CLEANUP(name) __attribute__((cleanup(cleanup_##name)))

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_fclose(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define _cleanup_free_	 __attribute__((cleanup(cleanup_free)))
#define _cleanup_close_	 __attribute__((cleanup(cleanup_close)))
#define _cleanup_fclose_ __attribute__((cleanup(cleanup_fclose)))

/* Gives the pointer away: the guarded variable is left NULL. */
#define take_ptr(p)                                                                                \
	({                                                                                         \
		__auto_type taken_ = (p);                                                          \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})

/* Gives the descriptor away: the guarded variable is left -1. */
#define take_fd(fd)                                                                                \
	({                                                                                         \
		int taken_ = (fd);                                                                 \
		(fd) = -1;                                                                         \
		taken_;                                                                            \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
