/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One open directory per level: a path that is renamed or removed behind us cannot lead elsewhere,
 * and symbolic links are not followed.
 */
#include "proc/cgroup_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "util/cleanup.h"
#include "util/text_file.h"

#define DIRECTORIES_MAX 200000
/* Each level holds a descriptor; the usual limit for those is 1024. */
#define DEPTH_MAX 128

struct walk {
	cgroup_visit *visit;
	void *arg;
	size_t directories;
	char path[PATH_MAX];
};

static bool is_gone(int err)
{
	return err == -ENOENT || err == -ENODEV;
}

static void cleanup_closedir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int walk_directory(struct walk *walk, int parent_fd, const char *name, unsigned int depth);

static int walk_entry(struct walk *walk, DIR *dir, const struct dirent *entry, unsigned int depth)
{
	size_t length = strlen(walk->path), name_length = strlen(entry->d_name);
	int err;

	if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
		return 0;
	if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)
		return 0;
	if (length + name_length + 2 > sizeof(walk->path))
		return -ENAMETOOLONG;
	if (length)
		walk->path[length] = '/';
	strcpy(walk->path + length + !!length, entry->d_name);
	err = walk_directory(walk, dirfd(dir), entry->d_name, depth + 1);
	walk->path[length] = 0;
	/* DT_UNKNOWN: it was a file or a link. */
	return err == -ENOTDIR || err == -ELOOP ? 0 : err;
}

static int walk_directory(struct walk *walk, int parent_fd, const char *name, unsigned int depth)
{
	DIR *dir __attribute__((cleanup(cleanup_closedir))) = NULL;
	int fd = openat(parent_fd, name,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth ? O_NOFOLLOW : 0));
	struct dirent *entry;
	int err;

	if (fd < 0)
		return is_gone(-errno) ? 0 : -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	if (++walk->directories > DIRECTORIES_MAX || depth > DEPTH_MAX)
		return -E2BIG;
	err = walk->visit(walk->arg, walk->path, fd);
	if (err)
		return err < 0 ? err : 0;
	while (errno = 0, (entry = readdir(dir))) {
		err = walk_entry(walk, dir, entry, depth);
		if (err)
			return err;
	}
	return errno && !is_gone(-errno) ? -errno : 0;
}

int cgroup_walk(const char *directory, cgroup_visit *visit, void *arg)
{
	struct walk *walk _cleanup_free_ = calloc(1, sizeof(*walk));

	if (!walk)
		return -ENOMEM;
	walk->visit = visit;
	walk->arg = arg;
	return walk_directory(walk, AT_FDCWD, directory, 0);
}

static int look_for_process(void *arg, const char *path, int fd)
{
	char *text _cleanup_free_ = NULL;
	int err = text_file_read_at(fd, "cgroup.procs", CGROUP_PROCS_MAX_BYTES, &text, NULL);

	if (err == -EOPNOTSUPP)
		err = text_file_read_at(fd, "cgroup.threads", CGROUP_PROCS_MAX_BYTES, &text, NULL);
	/* Any error ends the walk. */
	return !err && *text ? -EEXIST : 0;
}

bool cgroup_is_populated(const char *directory)
{
	return cgroup_walk(directory, look_for_process, NULL) == -EEXIST;
}
