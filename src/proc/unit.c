/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * systemd gives every unit that has processes a directory of the unit's name, in the directory of
 * its slice (systemd.slice(5)): /system.slice/x.service, slices that lie in slices as /a.slice/
 * a-b.slice, and units of a user's manager in /user.slice/user-UID.slice/user@UID.service/. Names
 * that look like a file of the kernel get a "_" in front (cg_escape() of systemd: those that begin
 * with "_" or ".", or with the name of a controller and a dot, "cgroup." among them).
 */
#include "proc/unit.h"

#include <errno.h>
#include <string.h>

#include "proc/cgroup_walk.h"

#define NAME_MAX_BYTES 255
#define MATCHES_MAX    16

static const char *const types[] = {".service", ".scope", ".slice",	".socket",
				    ".mount",	".swap",  ".automount", ".target"};

static bool ends_with(const char *text, size_t length, const char *suffix)
{
	size_t n = strlen(suffix);

	return length > n && !strncmp(text + length - n, suffix, n);
}

/* unit_name_mangle() of systemd, without its rules for paths of devices and mounts. */
static bool escape_name(const char *name, char *to, size_t size)
{
	static const char valid[] = "0123456789abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ:-_.\\@";
	size_t length = 0;

	for (; *name; name++) {
		if (length + 5 > size)
			return false;
		if (strchr(valid, *name))
			to[length++] = *name;
		else if (*name == '/')
			to[length++] = '-';
		else
			length += snprintf(to + length, 5, "\\x%02x", (unsigned char)*name);
	}
	to[length] = 0;
	return length;
}

struct search {
	char names[2][NAME_MAX_BYTES + 16]; /* the second may be "" */
	char *paths[MATCHES_MAX];
	bool ours[MATCHES_MAX];
	size_t count;
	size_t more; /* matches beyond MATCHES_MAX */
};

static bool is_name(const struct search *search, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(search->names); i++) {
		const char *wanted = search->names[i];

		if (*wanted &&
		    (!strcmp(name, wanted) || (name[0] == '_' && !strcmp(name + 1, wanted))))
			return true;
	}
	return false;
}

/*
 * Whether all folders above a unit's own are slices or users' managers (*ret_ours), and whether one
 * is a slice at all.
 */
static bool is_below_slice(const char *path, bool *ret_ours)
{
	bool slice = false;

	*ret_ours = true;
	for (const char *end; (end = strchr(path, '/')); path = end + 1) {
		if (ends_with(path, end - path, ".slice"))
			slice = true;
		else if (strncmp(path, "user@", 5) || !ends_with(path, end - path, ".service"))
			*ret_ours = false;
	}
	return slice;
}

static int visit(void *arg, const char *path, int fd)
{
	struct search *search = arg;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	bool ours;

	if (!is_name(search, name))
		return 0;
	/* Slices and init.scope are at the top. */
	if (!is_below_slice(path, &ours) && slash)
		return 0;
	if (search->count == MATCHES_MAX) {
		search->more++;
		return CGROUP_WALK_SKIP;
	}
	search->paths[search->count] = strdup(path);
	if (!search->paths[search->count])
		return -ENOMEM;
	search->ours[search->count++] = ours;
	return CGROUP_WALK_SKIP;
}

static void search_clear(struct search *search)
{
	for (size_t i = 0; i < search->count; i++)
		free(search->paths[i]);
	search->count = 0;
	search->more = 0;
}

/* Leaves what the host's own managers run, if there is any of it. */
static void prefer_ours(struct search *search)
{
	size_t kept = 0;
	bool any = false;

	for (size_t i = 0; i < search->count; i++)
		any |= search->ours[i];
	for (size_t i = 0; any && i < search->count; i++) {
		if (search->ours[i])
			search->paths[kept++] = search->paths[i];
		else
			free(search->paths[i]);
	}
	if (any)
		search->count = kept;
}

/* Leaves the matches that have processes, if one has. */
static void prefer_populated(struct search *search, const struct cgroup_mount *mount)
{
	size_t kept = 0;

	for (size_t i = 0; i < search->count; i++) {
		char *directory _cleanup_free_ = NULL;

		if (asprintf(&directory, "%s/%s", mount->point, search->paths[i]) < 0) {
			directory = NULL;
			continue;
		}
		if (cgroup_is_populated(directory)) {
			char *path = search->paths[i];

			search->paths[i] = search->paths[kept];
			search->paths[kept++] = path;
		}
	}
	while (kept && search->count > kept)
		free(search->paths[--search->count]);
}

static int several(const struct search *search, const char *name, struct scope_error *error)
{
	char list[1536];
	size_t length = 0;

	for (size_t i = 0; i < search->count && length < sizeof(list); i++)
		length +=
			snprintf(list + length, sizeof(list) - length, "\n  /%s", search->paths[i]);
	return scope_error_set(error, -ENOTUNIQ,
			       "unit '%s': %zu units of that name run; give one of them with "
			       "--cgroup:%s%s",
			       name, search->count + search->more, list,
			       search->more ? "\n  ..." : "");
}

static int open_match(const struct search *search, const struct cgroup_mount *mount,
		      struct cgroup_scope **ret)
{
	char *path _cleanup_free_ = NULL;

	if (asprintf(&path, "%s/%s", strcmp(mount->root, "/") ? mount->root : "",
		     search->paths[0]) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return cgroup_scope_open(mount, path, ret);
}

static int set_names(struct search *search, const char *name)
{
	char *escaped = search->names[0];

	if (!escape_name(name, escaped, NAME_MAX_BYTES + 1))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (ends_with(escaped, strlen(escaped), types[i]))
			return 0;
	snprintf(search->names[1], sizeof(search->names[1]), "%.*s.scope", NAME_MAX_BYTES, escaped);
	strcat(escaped, ".service");
	return 0;
}

static int find_in(struct search *search, const struct cgroup_mount *mount, const char *name,
		   struct cgroup_scope **ret, struct scope_error *error)
{
	int err = cgroup_walk(mount->point, visit, search);

	if (err)
		return scope_error_set(error, err, "unit '%s': reading %s: %s", name, mount->point,
				       strerror(-err));
	prefer_ours(search);
	prefer_populated(search, mount);
	if (!search->count)
		return -ENOENT;
	if (search->count > 1)
		return several(search, name, error);
	err = open_match(search, mount, ret);
	if (err && err != -ENOENT)
		return scope_error_set(error, err, "unit '%s': /%s below %s: %s", name,
				       search->paths[0], mount->point, strerror(-err));
	return err;
}

int unit_find(const struct cgroup_mounts *mounts, const char *name, struct cgroup_scope **ret,
	      struct scope_error *error)
{
	struct search search = {};
	int err = set_names(&search, name);

	if (err)
		return scope_error_set(
			error, err,
			"unit '%s': no unit can have this name; 'systemctl list-units' "
			"shows those there are",
			name);
	err = -ENOENT;
	for (size_t i = 0; i < mounts->count && err == -ENOENT; i++) {
		err = find_in(&search, &mounts->entries[i], name, ret, error);
		search_clear(&search);
	}
	if (err == -ENOENT)
		return scope_error_set(
			error, err,
			"unit '%s': no cgroup of the name %s%s%s; is it running? "
			"'systemctl list-units --state=running' and 'systemd-cgls' show "
			"what is",
			name, search.names[0], *search.names[1] ? " or " : "", search.names[1]);
	return err;
}
