/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * /proc/PID/maps, one mapping a line:
 *   START-END PERMS OFFSET MAJOR:MINOR INODE     PATH
 * (all hexadecimal but the inode). The kernel does not read it in one piece: a process that maps
 * while it is read may show a range twice.
 */
#include "proc/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "util/unescape.h"

#define DELETED_SUFFIX " (deleted)"

void maps_free(struct maps *maps)
{
	if (!maps)
		return;
	for (size_t i = 0; i < maps->count; i++)
		free(maps->entries[i].path);
	free(maps->entries);
	free(maps);
}

/* A number and the separator after it; *text is moved behind both. */
static bool take_number(const char **text, int base, char separator, uint64_t *ret)
{
	char *end;

	/* strtoull() would take blanks and signs too. */
	if (!strchr("0123456789abcdefABCDEF", **text) || !**text)
		return false;
	errno = 0;
	*ret = strtoull(*text, &end, base);
	if (errno || *end != separator)
		return false;
	*text = end + 1;
	return true;
}

static int parse_line(char *line, struct mapping *ret)
{
	const char *pos = line;
	struct mapping mapping = {};
	uint64_t major, minor;
	size_t length, suffix = strlen(DELETED_SUFFIX);
	char *end;

	if (!take_number(&pos, 16, '-', &mapping.start) ||
	    !take_number(&pos, 16, ' ', &mapping.end))
		return -EINVAL;
	if (mapping.start >= mapping.end || strnlen(pos, 5) < 5 || pos[4] != ' ')
		return -EINVAL;
	mapping.executable = pos[2] == 'x';
	pos += 5;
	if (!take_number(&pos, 16, ' ', &mapping.offset) || !take_number(&pos, 16, ':', &major) ||
	    !take_number(&pos, 16, ' ', &minor) || major > UINT_MAX || minor > UINT_MAX)
		return -EINVAL;
	mapping.dev_major = major;
	mapping.dev_minor = minor;
	/* Nothing, or blanks and a path, follow the inode. */
	if (*pos < '0' || *pos > '9')
		return -EINVAL;
	errno = 0;
	mapping.inode = strtoull(pos, &end, 10);
	if (errno || (*end && *end != ' '))
		return -EINVAL;
	end += strspn(end, " ");
	length = strlen(end);
	if (*end == '/' && length > suffix && !strcmp(end + length - suffix, DELETED_SUFFIX)) {
		mapping.deleted = true;
		end[length - suffix] = 0;
	}
	unescape_octal(end);
	mapping.path = strdup(end);
	if (!mapping.path)
		return -ENOMEM;
	*ret = mapping;
	return 0;
}

static int compare_mappings(const void *a, const void *b)
{
	const struct mapping *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

static int maps_reserve(struct maps *maps, size_t *capacity)
{
	size_t wanted = *capacity ? *capacity * 2 : 64;
	struct mapping *entries;

	if (maps->count < *capacity)
		return 0;
	entries = reallocarray(maps->entries, wanted, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	maps->entries = entries;
	*capacity = wanted;
	return 0;
}

int maps_parse(FILE *file, struct maps **ret)
{
	struct maps *maps CLEANUP(maps) = calloc(1, sizeof(*maps));
	char *line _cleanup_free_ = NULL;
	size_t line_size = 0, capacity = 0;
	ssize_t length;
	int err;

	if (!maps)
		return -ENOMEM;
	errno = 0;
	while ((length = getline(&line, &line_size, file)) > 0) {
		if (line[length - 1] == '\n')
			line[--length] = 0;
		if (strlen(line) != (size_t)length)
			return -EINVAL;
		err = maps_reserve(maps, &capacity);
		if (!err)
			err = parse_line(line, &maps->entries[maps->count]);
		if (err)
			return err;
		maps->count++;
		errno = 0;
	}
	if (ferror(file) || (!feof(file) && errno))
		return errno ? -errno : -EIO;
	if (maps->count)
		qsort(maps->entries, maps->count, sizeof(*maps->entries), compare_mappings);
	*ret = take_ptr(maps);
	return 0;
}

int maps_read(pid_t pid, struct maps **ret)
{
	char path[64];
	FILE *file _cleanup_fclose_ = NULL;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	file = fopen(path, "re");
	if (!file)
		return errno == ENOENT ? -ESRCH : -errno;
	return maps_parse(file, ret);
}

const struct mapping *maps_find(const struct maps *maps, uint64_t address)
{
	size_t low = 0, high = maps->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (maps->entries[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < maps->entries[low - 1].end ? &maps->entries[low - 1] : NULL;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Whether an open file is called like a mapping's. Its path may be another here. */
static bool has_name_of(int fd, const struct mapping *mapping)
{
	char link[32], path[PATH_MAX + 1] = "";
	size_t length = strlen(last_part(mapping->path));
	const char *name;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) < 0)
		return true;
	name = last_part(path);
	return !strncmp(name, last_part(mapping->path), length) &&
	       (!name[length] || !strcmp(name + length, DELETED_SUFFIX));
}

int maps_open_file(pid_t pid, const struct mapping *mapping)
{
	char *path _cleanup_free_ = NULL;
	int fd, err;

	if (!mapping->inode)
		return -ENOENT;
	if (asprintf(&path, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, mapping->start,
		     mapping->end) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	/* A mapped device must not block the open. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && has_name_of(fd, mapping))
		return fd;
	/* Another file has taken the address since. */
	if (fd >= 0) {
		close(fd);
		return -ENOENT;
	}
	/* A process that is ending has no memory any more before it has no files in /proc. */
	err = errno == ESRCH ? -ENOENT : -errno;
	/* What stands at the path of a deleted file now is another file. */
	if (mapping->path[0] != '/' || mapping->deleted)
		return err;
	free(path);
	if (asprintf(&path, "/proc/%d/root%s", pid, mapping->path) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd >= 0 ? fd : err;
}
