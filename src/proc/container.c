/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is known of containers comes from state files and from the names of cgroups, put together by
 * id. State files can be stale (a host that lost power, a daemon that is down) and PIDs are used
 * again, so a PID counts only if its start time is the recorded one or its cgroup bears the id.
 */
#include "proc/container.h"

#include <errno.h>
#include <string.h>

#include "proc/cgroup_walk.h"
#include "proc/container_path.h"
#include "proc/container_stores.h"
#include "proc/process.h"
#include "util/text_file.h"

#define PREFIX_MIN   3
#define LIST_MAX     16
#define ID_SHOWN_MAX 12

/* ------------------------------------------------------------------ processes */

static int read_stat(const char *root_folder, pid_t pid, struct process *ret)
{
	char *path _cleanup_free_ = NULL, *text _cleanup_free_ = NULL;
	int err;

	if (asprintf(&path, "%s/proc/%d/stat", root_folder, pid) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	err = text_file_read(path, 1 << 16, &text, NULL);
	return err ? err : process_parse_stat(text, ret);
}

/* The init process is the oldest of a container. 0 if the scope is empty. */
static int oldest_process(const struct cgroup_scope *scope, const char *root_folder, pid_t *ret)
{
	struct pid_list *list CLEANUP(pid_list) = NULL;
	unsigned long long oldest = -1ull;
	int err = cgroup_scope_pids(scope, root_folder, &list);

	*ret = 0;
	for (size_t i = 0; !err && i < list->count; i++) {
		struct process process;

		if (read_stat(root_folder, list->pids[i], &process) || process.zombie)
			continue;
		if (process.start_ticks < oldest) {
			oldest = process.start_ticks;
			*ret = list->pids[i];
		}
	}
	return err;
}

static bool cgroups_name(const struct process_cgroups *cgroups, const char *id)
{
	for (size_t i = 0; i < cgroups->count; i++)
		if (container_path_length(cgroups->entries[i].path, id))
			return true;
	return false;
}

/* The cgroups of a record's init process, if that is still the recorded one. */
static int init_cgroups(const char *root_folder, const struct container_record *record,
			struct process_cgroups **ret)
{
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	struct process process;
	int err;

	if (!record->init_pid || read_stat(root_folder, record->init_pid, &process) ||
	    process.zombie)
		return -ESRCH;
	if (record->start_ticks && process.start_ticks != record->start_ticks)
		return -ESRCH;
	err = process_cgroups_read(root_folder, record->init_pid, &cgroups);
	if (err)
		return err == -ENOMEM ? err : -ESRCH;
	if (!record->start_ticks && container_is_hex_id(record->id, strlen(record->id)) &&
	    !cgroups_name(cgroups, record->id))
		return -ESRCH;
	*ret = take_ptr(cgroups);
	return 0;
}

/* ------------------------------------------------------------------ cgroups */

static int open_cut(const struct cgroup_mount *mount, const char *path, size_t length,
		    struct cgroup_scope **ret)
{
	char *cut _cleanup_free_ = strndup(path, length);

	return cut ? cgroup_scope_open(mount, cut, ret) : -ENOMEM;
}

size_t container_path_share(const struct cgroup_mount *mount, const struct container_record *record,
			    const char *path)
{
	size_t length = container_path_length(path, record->id);
	char *directory _cleanup_free_ = NULL;

	if (length || !record->cgroup)
		return length;
	length = strlen(record->cgroup);
	if (length > 1 && cgroup_path_is_below(path, record->cgroup))
		return length;
	directory = cgroup_mount_directory(mount, path);
	/* runc notes a directory, which is the path's end. */
	if (!directory || !cgroup_path_is_below(directory, record->cgroup))
		return 0;
	length = strlen(path) - (strlen(directory) - length);
	return length > 1 ? length : 0;
}

/* By the cgroups of its first process, in the best hierarchy where those are the container's own.
 */
static int scope_of_process(const struct cgroup_mounts *mounts,
			    const struct container_record *record,
			    const struct process_cgroups *cgroups, struct cgroup_scope **ret)
{
	for (size_t i = 0; i < mounts->count; i++) {
		const struct cgroup_mount *mount = &mounts->entries[i];
		const char *path = process_cgroups_path(cgroups, mount);
		size_t length = path ? container_path_share(mount, record, path) : 0;
		int err = length ? open_cut(mount, path, length, ret) : -ENOENT;

		if (!err || err == -ENOMEM)
			return err;
	}
	return -ENOTSUP;
}

/* By the cgroup's path alone, where a process is in it. */
static int scope_of_path(const struct cgroup_mounts *mounts, const struct container_record *record,
			 struct cgroup_scope **ret)
{
	for (size_t i = 0; record->cgroup && i < mounts->count; i++) {
		struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
		int err = cgroup_scope_open(&mounts->entries[i], record->cgroup, &scope);

		if (err == -ENOMEM)
			return err;
		if (!err && cgroup_is_populated(scope->directory)) {
			*ret = take_ptr(scope);
			return 0;
		}
	}
	return -ESRCH;
}

static int resolve(const struct cgroup_mounts *mounts, const struct container_record *record,
		   struct cgroup_scope **ret, pid_t *ret_pid)
{
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	int err = init_cgroups(mounts->root_folder, record, &cgroups);

	if (!err) {
		err = scope_of_process(mounts, record, cgroups, &scope);
		*ret_pid = record->init_pid;
	} else if (err == -ESRCH) {
		err = scope_of_path(mounts, record, &scope);
		if (!err)
			err = oldest_process(scope, mounts->root_folder, ret_pid);
	}
	if (!err)
		*ret = take_ptr(scope);
	return err;
}

struct cgroup_search {
	const struct cgroup_mount *mount;
	struct container_records *records;
};

static int note_container(void *arg, const char *path, int fd)
{
	const struct cgroup_search *search = arg;
	struct container_record record _cleanup_container_record_ = {};
	struct container_path found;
	const char *root = search->mount->root;

	/* What lies below a container's folder is looked at, too: containers nest. */
	if (!container_path_parse(path, &found) || path[found.length])
		return 0;
	record.runtime = found.runtime;
	record.id = strdup(found.id);
	if (asprintf(&record.cgroup, "%s/%s", strcmp(root, "/") ? root : "", path) < 0)
		record.cgroup = NULL;
	if (!record.id || !record.cgroup)
		return -ENOMEM;
	return container_records_add(search->records, &record);
}

/* v2 and the best v1 hierarchy: every container has a folder in one of them. */
static int load_cgroups(const struct cgroup_mounts *mounts, struct container_records *records)
{
	size_t v1 = 0;
	int err = 0;

	for (size_t i = 0; !err && i < mounts->count; i++) {
		struct cgroup_search search = {&mounts->entries[i], records};

		if (search.mount->version == CGROUP_V1 && v1++)
			continue;
		err = cgroup_walk(search.mount->point, note_container, &search);
	}
	return err;
}

/* ------------------------------------------------------------------ matching */

static const char *known(const char *text)
{
	return text ? text : "";
}

/* "POD/NAME" with or without the namespace in front. */
static bool matches_in_pod(const char *pod, const char *name, const char *key)
{
	char full[1024];
	const char *slash;

	if (snprintf(full, sizeof(full), "%s/%s", pod, name) >= (int)sizeof(full))
		return false;
	slash = strchr(full, '/');
	return !strcmp(full, key) || (slash && !strcmp(slash + 1, key));
}

static bool matches_name(const struct container_record *record, const char *key)
{
	const char *pod = known(record->pod), *slash = strchr(pod, '/');

	if (!strcmp(record->id, key))
		return true;
	if (record->sandbox)
		return false;
	return (record->name && !strcmp(record->name, key)) ||
	       (*pod && (!strcmp(pod, key) || (slash && !strcmp(slash + 1, key)) ||
			 matches_in_pod(pod, known(record->name), key)));
}

static bool matches_prefix(const struct container_record *record, const char *key)
{
	return strlen(key) >= PREFIX_MIN && !strncmp(record->id, key, strlen(key));
}

struct matches {
	const struct container_record **records;
	size_t count;
};

static void cleanup_matches(struct matches *matches)
{
	free(matches->records);
}

static int find_matches(const struct container_records *records, const char *key,
			struct matches *ret)
{
	static bool (*const matchers[])(const struct container_record *,
					const char *) = {matches_name, matches_prefix};

	ret->records = calloc(records->count + 1, sizeof(*ret->records));
	if (!ret->records)
		return -ENOMEM;
	for (size_t m = 0; m < ARRAY_SIZE(matchers) && !ret->count; m++)
		for (size_t i = 0; i < records->count; i++)
			if (matchers[m](&records->entries[i], key))
				ret->records[ret->count++] = &records->entries[i];
	return 0;
}

char *container_record_name(const struct container_record *record)
{
	char *name = NULL;

	if (!record->pod)
		return strdup(known(record->name));
	return asprintf(&name, "%s/%s", record->pod, known(record->name)) < 0 ? NULL : name;
}

/* "\n  ID  NAME  RUNTIME" for each. */
static void list_records(const struct container_record *const *records, size_t count, char *to,
			 size_t size)
{
	size_t length = 0;

	to[0] = 0;
	for (size_t i = 0; i < count && i < LIST_MAX && length < size; i++) {
		char *name _cleanup_free_ = container_record_name(records[i]);
		bool hex = container_is_hex_id(records[i]->id, strlen(records[i]->id));

		length += snprintf(to + length, size - length, "\n  %.*s  %.100s%s%s",
				   hex ? ID_SHOWN_MAX : 100, records[i]->id, known(name),
				   *known(name) ? "  " : "", records[i]->runtime);
	}
	if (count > LIST_MAX && length < size)
		snprintf(to + length, size - length, "\n  and %zu more", count - LIST_MAX);
}

static int no_match(const struct container_records *records, const char *key,
		    struct scope_error *error)
{
	struct matches all __attribute__((cleanup(cleanup_matches))) = {};
	char list[1536] = "";

	all.records = calloc(records->count + 1, sizeof(*all.records));
	for (size_t i = 0; all.records && i < records->count; i++)
		if (!records->entries[i].sandbox)
			all.records[all.count++] = &records->entries[i];
	list_records(all.records, all.count, list, sizeof(list));
	if (strlen(key) < PREFIX_MIN && all.count)
		return scope_error_set(
			error, -ENOENT,
			"container '%s': none has this name, and an id needs its first "
			"%d characters; known are:%s",
			key, PREFIX_MIN, list);
	return scope_error_set(
		error, -ENOENT,
		"container '%s': none of docker, podman, CRI-O, containerd, runc, "
		"crun, systemd or LXC has this name or id; %s%s",
		key, all.count ? "known are:" : "give its cgroup with --cgroup instead", list);
}

/* ------------------------------------------------------------------ results */

void container_free(struct container *container)
{
	if (!container)
		return;
	free(container->id);
	free(container->name);
	cgroup_scope_free(container->scope);
	free(container);
}

static int make_container(const struct container_record *record, struct cgroup_scope *scope,
			  pid_t init_pid, struct container **ret)
{
	struct container *container CLEANUP(container) = calloc(1, sizeof(*container));

	if (!container) {
		cgroup_scope_free(scope);
		return -ENOMEM;
	}
	container->scope = scope;
	container->id = strdup(record->id);
	container->name = container_record_name(record);
	container->runtime = record->runtime;
	container->init_pid = init_pid;
	if (!container->id || !container->name)
		return -ENOMEM;
	*ret = take_ptr(container);
	return 0;
}

static int cannot_resolve(const struct container_record *record, const char *key, int err,
			  struct scope_error *error)
{
	if (err == -ENOTSUP)
		return scope_error_set(
			error, err,
			"container '%s' (%.64s, %s): it shares its cgroup with others, "
			"or that is not mounted here; give its processes with -p %d",
			key, record->id, record->runtime, record->init_pid);
	if (err == -ESRCH)
		return scope_error_set(
			error, err, "container '%s' (%.64s, %s): it is not running; start it first",
			key, record->id, record->runtime);
	return scope_error_set(error, err, "container '%s' (%.64s, %s): %s", key, record->id,
			       record->runtime, strerror(-err));
}

/* The one match that can be resolved; matches is left with those that run. */
static int choose(const struct cgroup_mounts *mounts, const char *key, struct matches *matches,
		  struct container **ret, struct scope_error *error)
{
	struct cgroup_scope *scope CLEANUP(cgroup_scope) = NULL;
	const struct container_record *first = matches->records[0];
	size_t running = 0;
	char list[1536];
	pid_t pid = 0;
	int err, first_err = 0;

	for (size_t i = 0; i < matches->count; i++) {
		struct cgroup_scope *candidate CLEANUP(cgroup_scope) = NULL;
		pid_t init_pid = 0;

		err = resolve(mounts, matches->records[i], &candidate, &init_pid);
		if (err && (!first_err || first_err == -ESRCH)) {
			first = matches->records[i];
			first_err = err;
		}
		if (err && err != -ENOTSUP)
			continue;
		matches->records[running++] = matches->records[i];
		if (!err && !scope) {
			scope = take_ptr(candidate);
			pid = init_pid;
		}
	}
	if (running > 1) {
		list_records(matches->records, running, list, sizeof(list));
		return scope_error_set(
			error, -ENOTUNIQ,
			"container '%s': this means %zu containers; give more of the "
			"name or id of one:%s",
			key, running, list);
	}
	if (!scope)
		return cannot_resolve(first, key, first_err, error);
	err = make_container(matches->records[0], take_ptr(scope), pid, ret);
	return err ? cannot_resolve(matches->records[0], key, err, error) : 0;
}

int container_find(const struct cgroup_mounts *mounts, const char *key, struct container **ret,
		   struct scope_error *error)
{
	struct container_records records _cleanup_container_records_ = {};
	struct matches matches __attribute__((cleanup(cleanup_matches))) = {};
	int err = container_records_load(mounts->root_folder, &records);

	if (!err)
		err = load_cgroups(mounts, &records);
	if (!err)
		err = find_matches(&records, key, &matches);
	if (err)
		return scope_error_set(error, err, "container '%s': looking for it: %s", key,
				       strerror(-err));
	if (!matches.count)
		return no_match(&records, key, error);
	return choose(mounts, key, &matches, ret, error);
}
