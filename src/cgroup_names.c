/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "cgroup_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/cgroup_walk.h"
#include "proc/container.h"
#include "proc/container_path.h"
#include "proc/container_stores.h"
#include "util/clock.h"
#include "util/printable.h"

/* Of a host that makes a cgroup per request, the later ones are not told apart. */
#define MAX_NAMES 16384
#define OTHER	  "(other)"

/* Cgroups that were removed before they had a name, whose processes come one after the other. */
#define MAX_MISSES 256

/* State files are read again at most that often, for containers that were started meanwhile. */
#define RELOAD_PAUSE_NS 1000000000ull

/* As runtimes show ids. */
#define ID_SHOWN 12

struct entry {
	uint64_t id;
	char *path;
	char *container;
};

struct cgroup_names {
	struct cgroup_mounts *mounts;
	const struct cgroup_mount *mount; /* of the hierarchy, or NULL */
	char controller[64];		  /* its first */
	struct container_records records;
	uint64_t loaded_ns;
	struct entry *entries; /* by id */
	size_t count;
	uint64_t misses[MAX_MISSES]; /* ids that were not found, the last ones */
	size_t miss_count;
	size_t left_out;
};

static bool has_directories(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = entry->d_type == DT_DIR && entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return found;
}

/* Whether a process is in a cgroup of a hierarchy other than its root. */
static bool has_process(const char *root, const struct cgroup_mount *mount, pid_t pid)
{
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	const char *path;

	if (process_cgroups_read(root, pid, &cgroups))
		return false;
	path = process_cgroups_path(cgroups, mount);
	return path && strcmp(path, "/");
}

static bool is_named(const struct cgroup_mount *mount)
{
	return !strncmp(mount->controllers, "name=", strlen("name="));
}

static bool is_of_scope(const struct cgroup_mount *mount, const struct cgroup_scope *scope)
{
	size_t length = strcspn(mount->controllers, ",");

	return scope->version == mount->version && strlen(scope->controller) == length &&
	       !strncmp(scope->controller, mount->controllers, length);
}

static const struct cgroup_mount *choose_mount(const struct cgroup_mounts *mounts,
					       const struct cgroup_scope *scope, pid_t pid)
{
	for (size_t i = 0; i < mounts->count; i++) {
		const struct cgroup_mount *mount = &mounts->entries[i];

		/* Named ones have no controller, by which the kernel side could tell them. */
		if (scope ? is_of_scope(mount, scope)
			  : !is_named(mount) && has_process(mounts->root_folder, mount, pid))
			return mount;
	}
	for (size_t i = 0; i < mounts->count; i++) {
		const struct cgroup_mount *mount = &mounts->entries[i];

		if (!is_named(mount) && has_directories(mount->point))
			return mount;
	}
	return mounts->count ? &mounts->entries[0] : NULL;
}

int cgroup_names_new(const char *root, const struct cgroup_scope *scope, pid_t pid,
		     struct cgroup_names **ret)
{
	struct cgroup_names *names CLEANUP(cgroup_names) = calloc(1, sizeof(*names));
	int err;

	if (!names)
		return -ENOMEM;
	err = cgroup_mounts_read(root, &names->mounts);
	if (err)
		return err;
	names->mount = choose_mount(names->mounts, scope, pid ? pid : getpid());
	if (names->mount)
		snprintf(names->controller, sizeof(names->controller), "%.*s",
			 (int)strcspn(names->mount->controllers, ","), names->mount->controllers);
	*ret = take_ptr(names);
	return 0;
}

void cgroup_names_free(struct cgroup_names *names)
{
	if (!names)
		return;
	for (size_t i = 0; i < names->count; i++) {
		free(names->entries[i].path);
		free(names->entries[i].container);
	}
	free(names->entries);
	container_records_fini(&names->records);
	cgroup_mounts_free(names->mounts);
	free(names);
}

const char *cgroup_names_controller(const struct cgroup_names *names)
{
	return names->mount ? names->controller : NULL;
}

/* ------------------------------------------------------------------ paths */

static char *path_of_process(const struct cgroup_names *names, pid_t pid)
{
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = NULL;
	const char *path;

	if (process_cgroups_read(names->mounts->root_folder, pid, &cgroups))
		return NULL;
	path = process_cgroups_path(cgroups, names->mount);
	return path ? strdup(path) : NULL;
}

static uint64_t id_of_path(const struct cgroup_names *names, const char *path)
{
	char *directory _cleanup_free_ = cgroup_mount_directory(names->mount, path);
	struct stat status;

	return directory && !stat(directory, &status) ? status.st_ino : 0;
}

uint64_t cgroup_names_number(const struct cgroup_names *names, pid_t pid)
{
	char *path _cleanup_free_ = names->mount ? path_of_process(names, pid) : NULL;

	return path ? id_of_path(names, path) : 0;
}

struct search {
	uint64_t id;
	char *found;
};

static int compare_id(void *arg, const char *path, int fd)
{
	struct search *search = arg;
	struct stat status;

	if (fstat(fd, &status) || status.st_ino != search->id)
		return 0;
	search->found = strdup(path);
	return search->found ? -EEXIST : -ENOMEM;
}

/* When the process that was seen there is gone, or has moved on. */
static char *path_of_id(const struct cgroup_names *names, uint64_t id)
{
	struct search search = {.id = id};
	char *path = NULL;

	cgroup_walk(names->mount->point, compare_id, &search);
	if (search.found &&
	    asprintf(&path, "%s/%s", strcmp(names->mount->root, "/") ? names->mount->root : "",
		     search.found) < 0)
		path = NULL;
	free(search.found);
	return path;
}

/* ------------------------------------------------------------------ containers */

static const struct container_record *record_of(const struct cgroup_names *names, const char *path)
{
	const struct container_record *best = NULL;
	size_t best_length = 0;

	for (size_t i = 0; i < names->records.count; i++) {
		const struct container_record *record = &names->records.entries[i];
		size_t length = container_path_share(names->mount, record, path);

		if (length > best_length) {
			best = record;
			best_length = length;
		}
	}
	return best;
}

static void reload(struct cgroup_names *names)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (names->loaded_ns && now - names->loaded_ns < RELOAD_PAUSE_NS)
		return;
	names->loaded_ns = now;
	container_records_fini(&names->records);
	/* Without memory for all, those that were read serve. */
	container_records_load(names->mounts->root_folder, &names->records);
}

static char *container_of(struct cgroup_names *names, const char *path)
{
	const struct container_record *record = record_of(names, path);
	struct container_path parsed = {};
	char *name _cleanup_free_ = NULL;
	const char *id = parsed.id;

	if (!record && strcmp(path, "/")) {
		reload(names);
		record = record_of(names, path);
	}
	if (record) {
		name = container_record_name(record);
		id = record->id;
	} else if (!container_path_parse(path, &parsed)) {
		return strdup("");
	}
	if (name && *name)
		return take_ptr(name);
	return strndup(id, container_is_hex_id(id, strlen(id)) ? ID_SHOWN : strlen(id));
}

/* ------------------------------------------------------------------ the table */

/* Where an id is, or would be. */
static size_t place_of(const struct cgroup_names *names, uint64_t id)
{
	size_t low = 0, high = names->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (names->entries[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct entry *add(struct cgroup_names *names, uint64_t id, char *path)
{
	struct entry *entries, entry = {.id = id, .path = path};
	size_t at = place_of(names, id);

	entry.container = container_of(names, path);
	entries = reallocarray(names->entries, names->count + 1, sizeof(*entries));
	if (entries)
		names->entries = entries;
	if (!entries || !entry.container) {
		free(entry.container);
		free(path);
		return NULL;
	}
	printable(entry.path);
	printable(entry.container);
	memmove(&entries[at + 1], &entries[at], (names->count++ - at) * sizeof(*entries));
	entries[at] = entry;
	return &entries[at];
}

static bool is_missed(const struct cgroup_names *names, uint64_t id)
{
	for (size_t i = 0; i < names->miss_count && i < MAX_MISSES; i++)
		if (names->misses[i] == id)
			return true;
	return false;
}

/* Looks for a cgroup without a name. NULL if there is none, or no memory. */
static struct entry *search(struct cgroup_names *names, uint64_t id, pid_t pid)
{
	char *path = path_of_process(names, pid);

	if (!path || id_of_path(names, path) != id) {
		free(path);
		path = path_of_id(names, id);
	}
	if (path)
		return add(names, id, path);
	names->misses[names->miss_count++ % MAX_MISSES] = id;
	return NULL;
}

struct cgroup_name cgroup_names_find(struct cgroup_names *names, uint64_t id, pid_t pid)
{
	const struct entry *entry = NULL;
	size_t at;

	if (!names->mount || !id)
		return (struct cgroup_name){"", ""};
	at = place_of(names, id);
	if (at < names->count && names->entries[at].id == id) {
		entry = &names->entries[at];
	} else if (names->count == MAX_NAMES) {
		names->left_out++;
		return (struct cgroup_name){OTHER, OTHER};
	} else if (!is_missed(names, id)) {
		entry = search(names, id, pid);
	}
	return entry ? (struct cgroup_name){entry->path, entry->container}
		     : (struct cgroup_name){"", ""};
}

size_t cgroup_names_left_out(const struct cgroup_names *names)
{
	return names->left_out;
}
