/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * /proc/PID/mountinfo (proc(5)), one mount a line:
 *   ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER_OPTIONS
 * and /proc/PID/cgroup (cgroups(7)), one hierarchy a line:
 *   ID:CONTROLLERS:PATH
 * v2 is "0::PATH", and a v1 hierarchy without controllers "ID:name=systemd:PATH". A path has no
 * line end in it: the kernel refuses such names. It may have colons.
 */
#include "proc/cgroup.h"

#include <errno.h>
#include <string.h>

#include "util/text_file.h"
#include "util/unescape.h"

/* Some 100 bytes a mount; hosts of many containers have thousands of mounts. */
#define MOUNTINFO_MAX_BYTES (64u << 20)
/* 4 KiB at most for each of a dozen hierarchies. */
#define CGROUP_MAX_BYTES (1u << 20)

static bool list_has(const char *list, const char *word, size_t length)
{
	for (const char *pos = list; pos && *pos;
	     pos = strchr(pos, ',') ? strchr(pos, ',') + 1 : NULL)
		if (strcspn(pos, ",") == length && !strncmp(pos, word, length))
			return true;
	return false;
}

/* ------------------------------------------------------------------ mounts */

struct mountinfo_line {
	unsigned long id;
	unsigned long parent;
	char *root;
	char *point;
	char *type;
	char *options; /* of the file system */
};

static bool parse_mount(char *line, struct mountinfo_line *ret)
{
	char *fields[10] = {}, *field;
	size_t count = 0;
	bool optional = false;

	while ((field = strsep(&line, " "))) {
		if (optional && strcmp(field, "-"))
			continue;
		optional = false;
		if (count == ARRAY_SIZE(fields))
			return false;
		fields[count++] = field;
		/* The optional fields end at a "-", which takes the place 6. */
		if (count == 6)
			optional = true;
	}
	if (count < 10)
		return false;
	ret->id = strtoul(fields[0], NULL, 10);
	ret->parent = strtoul(fields[1], NULL, 10);
	ret->root = fields[3];
	ret->point = fields[4];
	ret->type = fields[7];
	ret->options = fields[9];
	unescape_octal(ret->root);
	unescape_octal(ret->point);
	return ret->root[0] == '/' && ret->point[0] == '/';
}

/* What is left of a v1 mount's options without those that are no controllers
 * (cgroup1_show_options).
 */
static char *v1_controllers(char *options)
{
	static const char others[] = "rw,ro,noprefix,xattr,clone_children,cpuset_v2_mode,"
				     "favordynmods,seclabel,none";
	char *controllers = calloc(1, strlen(options) + 1), *option;

	while (controllers && (option = strsep(&options, ","))) {
		if (!*option || list_has(others, option, strlen(option)) ||
		    !strncmp(option, "release_agent=", strlen("release_agent=")))
			continue;
		/* A hierarchy with controllers may have a name, too. */
		if (!strncmp(option, "name=", 5) && *controllers)
			continue;
		if (!strncmp(controllers, "name=", 5))
			controllers[0] = 0;
		if (*controllers)
			strcat(controllers, ",");
		strcat(controllers, option);
	}
	return controllers;
}

static unsigned int mount_rank(const struct cgroup_mount *mount)
{
	static const char *const order[] = {"memory", "pids", "cpu"};

	if (mount->version == CGROUP_V2)
		return 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(order); i++)
		if (list_has(mount->controllers, order[i], strlen(order[i])))
			return 1 + i;
	return strncmp(mount->controllers, "name=", 5) ? 10 : 11;
}

static int compare_mounts(const void *a, const void *b)
{
	const struct cgroup_mount *x = a, *y = b;
	unsigned int rank_x = mount_rank(x), rank_y = mount_rank(y);

	if (rank_x != rank_y)
		return rank_x < rank_y ? -1 : 1;
	/* What shows the whole hierarchy comes first. */
	if (!strcmp(x->root, "/") != !strcmp(y->root, "/"))
		return strcmp(x->root, "/") ? 1 : -1;
	return strcmp(x->point, y->point);
}

void cgroup_mounts_free(struct cgroup_mounts *mounts)
{
	if (!mounts)
		return;
	for (size_t i = 0; i < mounts->count; i++) {
		free(mounts->entries[i].controllers);
		free(mounts->entries[i].point);
		free(mounts->entries[i].root);
	}
	free(mounts->entries);
	free(mounts->root_folder);
	free(mounts);
}

static int mounts_add(struct cgroup_mounts *mounts, const struct mountinfo_line *line)
{
	struct cgroup_mount *entries =
		reallocarray(mounts->entries, mounts->count + 1, sizeof(*entries));
	struct cgroup_mount *mount;

	if (!entries)
		return -ENOMEM;
	mounts->entries = entries;
	mount = &entries[mounts->count];
	*mount = (struct cgroup_mount){
		.version = strcmp(line->type, "cgroup2") ? CGROUP_V1 : CGROUP_V2,
		.root = strdup(line->root),
	};
	mounts->count++;
	mount->controllers =
		mount->version == CGROUP_V1 ? v1_controllers(line->options) : strdup("");
	if (asprintf(&mount->point, "%s%s", mounts->root_folder, line->point) < 0)
		mount->point = NULL;
	return mount->root && mount->controllers && mount->point ? 0 : -ENOMEM;
}

static bool is_hidden(const struct mountinfo_line *lines, size_t count, size_t index)
{
	for (size_t i = 0; i < count; i++)
		if (i != index && lines[i].parent == lines[index].id &&
		    !strcmp(lines[i].point, lines[index].point))
			return true;
	return false;
}

int cgroup_mounts_parse(const char *text, const char *root_folder, struct cgroup_mounts **ret)
{
	struct cgroup_mounts *mounts CLEANUP(cgroup_mounts) = calloc(1, sizeof(*mounts));
	struct mountinfo_line *lines _cleanup_free_ = NULL;
	char *copy _cleanup_free_ = strdup(text), *rest = copy, *line;
	size_t count = 0, max = 1;
	int err;

	if (!mounts || !copy)
		return -ENOMEM;
	/* The root folder's own name may lead through symbolic links. */
	mounts->root_folder = *root_folder ? realpath(root_folder, NULL) : strdup("");
	if (!mounts->root_folder)
		return -errno;
	for (const char *c = text; *c; c++)
		max += *c == '\n';
	lines = calloc(max, sizeof(*lines));
	if (!lines)
		return -ENOMEM;
	while ((line = strsep(&rest, "\n")))
		if (parse_mount(line, &lines[count]))
			count++;
	for (size_t i = 0; i < count; i++) {
		if ((strcmp(lines[i].type, "cgroup") && strcmp(lines[i].type, "cgroup2")) ||
		    is_hidden(lines, count, i))
			continue;
		err = mounts_add(mounts, &lines[i]);
		if (err)
			return err;
	}
	if (mounts->count)
		qsort(mounts->entries, mounts->count, sizeof(*mounts->entries), compare_mounts);
	*ret = take_ptr(mounts);
	return 0;
}

int cgroup_mounts_read(const char *root_folder, struct cgroup_mounts **ret)
{
	char *path _cleanup_free_ = NULL, *text _cleanup_free_ = NULL;
	int err;

	if (asprintf(&path, "%s/proc/self/mountinfo", root_folder) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	err = text_file_read(path, MOUNTINFO_MAX_BYTES, &text, NULL);
	return err ? err : cgroup_mounts_parse(text, root_folder, ret);
}

bool cgroup_path_is_below(const char *path, const char *top)
{
	size_t length = strlen(top);

	if (!strcmp(top, "/"))
		return path[0] == '/' && strncmp(path, "/..", 3);
	return !strncmp(path, top, length) && (!path[length] || path[length] == '/');
}

char *cgroup_mount_directory(const struct cgroup_mount *mount, const char *path)
{
	const char *rest;
	char *directory;

	if (!cgroup_path_is_below(path, mount->root))
		return NULL;
	rest = strcmp(mount->root, "/") ? path + strlen(mount->root) : path;
	if (!strcmp(rest, "/"))
		rest = "";
	return asprintf(&directory, "%s%s", mount->point, rest) < 0 ? NULL : directory;
}

/* ------------------------------------------------------------------ /proc/PID/cgroup */

void process_cgroups_free(struct process_cgroups *cgroups)
{
	if (!cgroups)
		return;
	for (size_t i = 0; i < cgroups->count; i++) {
		free(cgroups->entries[i].controllers);
		free(cgroups->entries[i].path);
	}
	free(cgroups->entries);
	free(cgroups);
}

static int parse_cgroup(char *line, struct process_cgroup *ret)
{
	static const char deleted[] = " (deleted)";
	char *controllers = strchr(line, ':'), *path;
	size_t length;

	path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path || path[1] != '/')
		return -EINVAL;
	*path++ = 0;
	controllers++;
	length = strlen(path);
	if (length > strlen(deleted) && !strcmp(path + length - strlen(deleted), deleted))
		path[length - strlen(deleted)] = 0;
	ret->version = *controllers ? CGROUP_V1 : CGROUP_V2;
	ret->controllers = strdup(controllers);
	ret->path = strdup(path);
	return ret->controllers && ret->path ? 0 : -ENOMEM;
}

int process_cgroups_parse(const char *text, struct process_cgroups **ret)
{
	struct process_cgroups *cgroups CLEANUP(process_cgroups) = calloc(1, sizeof(*cgroups));
	char *copy _cleanup_free_ = strdup(text), *rest = copy, *line;
	size_t max = 1;
	int err;

	if (!cgroups || !copy)
		return -ENOMEM;
	for (const char *c = text; *c; c++)
		max += *c == '\n';
	cgroups->entries = calloc(max, sizeof(*cgroups->entries));
	if (!cgroups->entries)
		return -ENOMEM;
	while ((line = strsep(&rest, "\n"))) {
		if (!*line)
			continue;
		err = parse_cgroup(line, &cgroups->entries[cgroups->count++]);
		if (err)
			return err;
	}
	*ret = take_ptr(cgroups);
	return 0;
}

int process_cgroups_read(const char *root_folder, pid_t pid, struct process_cgroups **ret)
{
	char *path _cleanup_free_ = NULL, *text _cleanup_free_ = NULL;
	int err;

	if (asprintf(&path, "%s/proc/%d/cgroup", root_folder, pid) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	err = text_file_read(path, CGROUP_MAX_BYTES, &text, NULL);
	if (err)
		return err == -ENOENT ? -ESRCH : err;
	return process_cgroups_parse(text, ret);
}

const char *process_cgroups_find(const struct process_cgroups *cgroups, enum cgroup_version version,
				 const char *controllers)
{
	size_t length = strcspn(controllers, ",");

	for (size_t i = 0; i < cgroups->count; i++) {
		const struct process_cgroup *entry = &cgroups->entries[i];

		if (entry->version == version &&
		    (version == CGROUP_V2 || list_has(entry->controllers, controllers, length)))
			return entry->path;
	}
	return NULL;
}

const char *process_cgroups_path(const struct process_cgroups *cgroups,
				 const struct cgroup_mount *mount)
{
	return process_cgroups_find(cgroups, mount->version, mount->controllers);
}
