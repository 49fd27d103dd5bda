/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A root folder of a test's own, filled with small files. */
#ifndef HEAPTAP_TESTS_TREE_FIXTURE_H
#define HEAPTAP_TESTS_TREE_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char tree_root[64];

static inline int tree_setup(void **state)
{
	strcpy(tree_root, "/tmp/heaptap-test-XXXXXX");
	return mkdtemp(tree_root) ? 0 : -1;
}

static inline int tree_teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", tree_root);
	return system(command);
}

/* Writes a file below the root, with the folders above it. */
static inline void __attribute__((format(printf, 2, 3)))
tree_write(const char *path, const char *format, ...)
{
	char full[PATH_MAX];
	va_list args;
	FILE *file;

	snprintf(full, sizeof(full), "%s%s", tree_root, path);
	for (char *slash = full + strlen(tree_root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		if (mkdir(full, 0755) && errno != EEXIST)
			fail_msg("mkdir %s: %s", full, strerror(errno));
		*slash = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	va_start(args, format);
	vfprintf(file, format, args);
	va_end(args);
	assert_int_equal(fclose(file), 0);
}

/* A cgroup: its folder and its cgroup.procs. */
static inline void tree_cgroup(const char *directory, const char *pids)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/cgroup.procs", directory);
	tree_write(path, "%s", pids);
}

#endif
