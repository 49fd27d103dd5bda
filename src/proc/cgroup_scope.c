/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc/cgroup_scope.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "proc/cgroup_walk.h"
#include "util/text_file.h"

void cgroup_scope_free(struct cgroup_scope *scope)
{
	if (!scope)
		return;
	free(scope->directory);
	free(scope->path);
	free(scope);
}

/* Every cgroup has this file, v2's root too, and no other directory of /sys has. */
static int check_directory(const char *directory, uint64_t *ret_id)
{
	char *procs _cleanup_free_ = NULL;
	struct stat st, file;

	if (asprintf(&procs, "%s/cgroup.procs", directory) < 0) {
		procs = NULL;
		return -ENOMEM;
	}
	if (stat(directory, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || stat(procs, &file) < 0)
		return -ENOTDIR;
	*ret_id = st.st_ino;
	return 0;
}

int cgroup_scope_open(const struct cgroup_mount *mount, const char *path, struct cgroup_scope **ret)
{
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = calloc(1, sizeof(*scope));
	int err;

	if (!scope)
		return -ENOMEM;
	if (!cgroup_path_is_below(path, mount->root))
		return -EXDEV;
	scope->directory = cgroup_mount_directory(mount, path);
	scope->path = strdup(path);
	if (!scope->directory || !scope->path)
		return -ENOMEM;
	err = check_directory(scope->directory, &scope->id);
	if (err)
		return err;
	scope->version = mount->version;
	snprintf(scope->controller, sizeof(scope->controller), "%.*s",
		 (int)strcspn(mount->controllers, ","), mount->controllers);
	*ret = take_ptr(scope);
	return 0;
}

/* "/" and the words of path with one "/" between them; NULL if one is "." or "..". */
static int normalize(const char *path, char **ret)
{
	char *copy _cleanup_free_ = strdup(path), *rest = copy, *word;
	char *normal _cleanup_free_ = calloc(1, strlen(path) + 2);

	if (!copy || !normal)
		return -ENOMEM;
	while ((word = strsep(&rest, "/"))) {
		if (!*word)
			continue;
		if (!strcmp(word, ".") || !strcmp(word, ".."))
			return -EINVAL;
		strcat(normal, "/");
		strcat(normal, word);
	}
	if (!*normal)
		strcpy(normal, "/");
	*ret = take_ptr(normal);
	return 0;
}

/* A directory that exists below a mount point: 0, or -ENOENT if it is below none. */
static int find_absolute(const struct cgroup_mounts *mounts, const char *path,
			 struct cgroup_scope **ret)
{
	const struct cgroup_mount *best = NULL;
	char *named _cleanup_free_ = NULL, *real _cleanup_free_ = NULL,
		    *inside _cleanup_free_ = NULL;
	const char *rest;

	if (path[0] != '/')
		return -ENOENT;
	if (asprintf(&named, "%s%s", mounts->root_folder, path) < 0) {
		named = NULL;
		return -ENOMEM;
	}
	/* /sys/fs/cgroup/cpu is a symbolic link to cpu,cpuacct. */
	real = realpath(named, NULL);
	if (!real)
		return errno == ENOMEM ? -ENOMEM : -ENOENT;
	for (size_t i = 0; i < mounts->count; i++) {
		const struct cgroup_mount *mount = &mounts->entries[i];

		if (cgroup_path_is_below(real, mount->point) &&
		    (!best || strlen(mount->point) > strlen(best->point)))
			best = mount;
	}
	if (!best)
		return -ENOENT;
	rest = real + strlen(best->point);
	if (asprintf(&inside, "%s%s", strcmp(best->root, "/") || !*rest ? best->root : "", rest) <
	    0) {
		inside = NULL;
		return -ENOMEM;
	}
	return cgroup_scope_open(best, inside, ret);
}

/* The path as /proc/PID/cgroup has it, or else counted from what the mount shows. */
static int open_relative(const struct cgroup_mount *mount, const char *path,
			 struct cgroup_scope **ret)
{
	char *inside _cleanup_free_ = NULL;
	int err = cgroup_scope_open(mount, path, ret);

	if ((err != -EXDEV && err != -ENOENT) || !strcmp(mount->root, "/"))
		return err;
	if (asprintf(&inside, "%s%s", mount->root, strcmp(path, "/") ? path : "") < 0) {
		inside = NULL;
		return -ENOMEM;
	}
	return cgroup_scope_open(mount, inside, ret);
}

static int find_relative(const struct cgroup_mounts *mounts, const char *path,
			 struct cgroup_scope **ret)
{
	struct cgroup_scope *first CLEANUP(cgroup_scope) = NULL;
	int worst = -ENOENT;

	for (size_t i = 0; i < mounts->count; i++) {
		struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
		int err = open_relative(&mounts->entries[i], path, &scope);

		if (err == -ENOMEM)
			return err;
		if (err && err != -ENOENT && err != -EXDEV)
			worst = err;
		if (err)
			continue;
		if (cgroup_is_populated(scope->directory)) {
			*ret = take_ptr(scope);
			return 0;
		}
		if (!first)
			first = take_ptr(scope);
	}
	if (!first)
		return worst;
	*ret = take_ptr(first);
	return 0;
}

int cgroup_scope_find(const struct cgroup_mounts *mounts, const char *path,
		      struct cgroup_scope **ret, struct scope_error *error)
{
	char *normal _cleanup_free_ = NULL;
	int err;

	if (!mounts->count)
		return scope_error_set(
			error, -ENOENT,
			"cgroup '%s': no cgroup file system is mounted here; mount it "
			"with 'mount -t cgroup2 none /sys/fs/cgroup'",
			path);
	err = *path ? normalize(path, &normal) : -EINVAL;
	if (err == -EINVAL)
		return scope_error_set(
			error, err,
			"cgroup '%s': not a path; give a directory below %s, or a path "
			"as in /proc/PID/cgroup",
			path, mounts->entries[0].point);
	if (!err)
		err = find_absolute(mounts, normal, ret);
	if (err == -ENOENT)
		err = find_relative(mounts, normal, ret);
	if (!err)
		return 0;
	if (err == -ENOENT)
		return scope_error_set(
			error, err,
			"cgroup '%s': there is none below %s%s; /proc/PID/cgroup shows "
			"the path of a process's cgroup",
			path, mounts->entries[0].point,
			mounts->count > 1 ? " or the other cgroup mounts" : "");
	if (err == -ENOTDIR)
		return scope_error_set(
			error, err,
			"cgroup '%s': this is no cgroup but a file or another folder; "
			"give the directory that has a cgroup.procs",
			path);
	return scope_error_set(error, err, "cgroup '%s': %s", path, strerror(-err));
}

int cgroup_scope_has_pid(const struct cgroup_scope *scope, const char *root_folder, pid_t pid,
			 bool *ret)
{
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	const char *path;
	int err = process_cgroups_read(root_folder, pid, &cgroups);

	if (err)
		return err;
	path = process_cgroups_find(cgroups, scope->version, scope->controller);
	*ret = path && cgroup_path_is_below(path, scope->path);
	return 0;
}

/* ------------------------------------------------------------------ processes */

struct collection {
	const char *root_folder;
	struct pid_list *list;
	size_t capacity;
};

static int collection_add(struct collection *collection, pid_t pid)
{
	struct pid_list *list = collection->list;

	if (list->count == collection->capacity) {
		size_t wanted = collection->capacity ? collection->capacity * 2 : 64;
		pid_t *pids;

		if (wanted > 2 * CGROUP_PIDS_MAX)
			return -E2BIG;
		pids = reallocarray(list->pids, wanted, sizeof(*pids));
		if (!pids)
			return -ENOMEM;
		list->pids = pids;
		collection->capacity = wanted;
	}
	list->pids[list->count++] = pid;
	return 0;
}

/* The process of a thread; 0 if it is gone. */
static pid_t process_of(const char *root_folder, pid_t tid)
{
	static const char key[] = "\nTgid:";
	char *path _cleanup_free_ = NULL, *text _cleanup_free_ = NULL;
	const char *pos;
	int pid;

	if (asprintf(&path, "%s/proc/%d/status", root_folder, tid) < 0) {
		path = NULL;
		return 0;
	}
	if (text_file_read(path, 1 << 16, &text, NULL))
		return 0;
	pos = strstr(text, key);
	return pos && sscanf(pos + strlen(key), "%d", &pid) == 1 ? pid : 0;
}

/* A PID of 0 stands for a process outside our PID namespace. */
static int add_lines(struct collection *collection, const char *text, bool threads)
{
	for (const char *pos = text; *pos;) {
		char *end;
		long pid = strtol(pos, &end, 10);
		int err;

		if (end == pos)
			return 0;
		if (pid > 0 && pid <= INT_MAX && threads)
			pid = process_of(collection->root_folder, pid);
		err = pid > 0 && pid <= INT_MAX ? collection_add(collection, pid) : 0;
		if (err)
			return err;
		pos = end + strspn(end, " \n");
	}
	return 0;
}

static int collect(void *arg, const char *path, int fd)
{
	struct collection *collection = arg;
	char *text _cleanup_free_ = NULL;
	int err = text_file_read_at(fd, "cgroup.procs", CGROUP_PROCS_MAX_BYTES, &text, NULL);
	bool threads = err == -EOPNOTSUPP;

	/* A threaded cgroup does not show processes: those belong to its domain. */
	if (threads)
		err = text_file_read_at(fd, "cgroup.threads", CGROUP_PROCS_MAX_BYTES, &text, NULL);
	if (err)
		return err == -ENOENT || err == -ENODEV ? 0 : err;
	return add_lines(collection, text, threads);
}

void pid_list_free(struct pid_list *list)
{
	if (!list)
		return;
	free(list->pids);
	free(list);
}

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return x < y ? -1 : x > y;
}

int cgroup_scope_pids(const struct cgroup_scope *scope, const char *root_folder,
		      struct pid_list **ret)
{
	struct pid_list *list CLEANUP(pid_list) = calloc(1, sizeof(*list));
	struct collection collection = {.root_folder = root_folder, .list = list};
	size_t unique = 0;
	int err;

	if (!list)
		return -ENOMEM;
	err = cgroup_walk(scope->directory, collect, &collection);
	if (err)
		return err;
	if (list->count)
		qsort(list->pids, list->count, sizeof(*list->pids), compare_pids);
	for (size_t i = 0; i < list->count; i++)
		if (!i || list->pids[i] != list->pids[unique - 1])
			list->pids[unique++] = list->pids[i];
	list->count = unique;
	*ret = take_ptr(list);
	return 0;
}
