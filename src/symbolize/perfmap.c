/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Code moves, is thrown away and its memory used again, and the file only grows: a later line is
 * right where it overlaps an earlier one. The file's text is kept, and names are pieces of it.
 */
#include "symbolize/perfmap.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "util/cover.h"

#define FILE_MAX_BYTES (64u << 20)
#define ENTRIES_MAX    (1u << 21)
/* Longer names are cut. */
#define NAME_MAX_SIZE 1024u

struct entry {
	uint64_t start;
	uint64_t end;
	const char *name;
};

/* What was read of the file. */
struct contents {
	char *text;
	struct entry *entries; /* by start, then as in the file */
	size_t count;
	size_t capacity;
	size_t malformed;
	struct cover *cover;
};

struct perfmap {
	struct contents contents;
	struct stat stat; /* when it was read last */
};

static void contents_fini(struct contents *contents)
{
	free(contents->text);
	free(contents->entries);
	cover_free(contents->cover);
}

int perfmap_new(struct perfmap **ret)
{
	struct perfmap *perfmap = calloc(1, sizeof(*perfmap));

	if (!perfmap)
		return -ENOMEM;
	*ret = perfmap;
	return 0;
}

void perfmap_free(struct perfmap *perfmap)
{
	if (!perfmap)
		return;
	contents_fini(&perfmap->contents);
	free(perfmap);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A hexadecimal number, with or without 0x, and the blanks after it. */
static bool take_hex(char **pos, uint64_t *ret)
{
	char *p = *pos;
	uint64_t value = 0;
	size_t digits = 0;

	if (p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (; digit(*p) >= 0; p++, digits++)
		value = value << 4 | digit(*p);
	if (!digits || digits > 16 || (*p != ' ' && *p != '\t'))
		return false;
	*pos = p + strspn(p, " \t");
	*ret = value;
	return true;
}

static bool parse_line(char *line, struct entry *ret)
{
	uint64_t size;
	size_t length;

	if (!take_hex(&line, &ret->start) || !take_hex(&line, &size) || !size ||
	    size > UINT64_MAX - ret->start)
		return false;
	length = strlen(line);
	while (length && (line[length - 1] == '\r' || line[length - 1] == ' '))
		length--;
	if (!length)
		return false;
	if (length > NAME_MAX_SIZE)
		length = NAME_MAX_SIZE;
	line[length] = 0;
	/* What would move a terminal's cursor is no part of a name. */
	for (char *c = line; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	}
	ret->end = ret->start + size;
	ret->name = line;
	return true;
}

static int reserve(struct contents *contents)
{
	size_t capacity = contents->capacity ? 2 * contents->capacity : 256;
	struct entry *entries;

	if (contents->count < contents->capacity)
		return 0;
	entries = reallocarray(contents->entries, capacity, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	contents->entries = entries;
	contents->capacity = capacity;
	return 0;
}

static int parse(struct contents *contents, size_t size)
{
	char *line = contents->text, *end = contents->text + size;

	while (line < end) {
		char *stop = memchr(line, '\n', end - line);
		int err;

		/* The target is writing the last line. */
		if (!stop)
			break;
		*stop = 0;
		err = reserve(contents);
		if (err)
			return err;
		if (contents->count < ENTRIES_MAX && strlen(line) == (size_t)(stop - line) &&
		    parse_line(line, &contents->entries[contents->count]))
			contents->count++;
		else
			contents->malformed++;
		line = stop + 1;
	}
	return 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	/* Names lie in the text in the order of lines. */
	return x->name < y->name ? -1 : x->name > y->name;
}

static bool is_later(const void *arg, uint32_t a, uint32_t b)
{
	const struct entry *entries = arg;

	return entries[a].name > entries[b].name;
}

static int build_cover(struct contents *contents)
{
	_cleanup_free_ struct cover_range *ranges = calloc(contents->count + 1, sizeof(*ranges));

	if (!ranges)
		return -ENOMEM;
	if (contents->count)
		qsort(contents->entries, contents->count, sizeof(*contents->entries),
		      compare_entries);
	for (size_t i = 0; i < contents->count; i++)
		ranges[i] =
			(struct cover_range){contents->entries[i].start, contents->entries[i].end};
	return cover_build(ranges, contents->count, is_later, contents->entries, &contents->cover);
}

static int load(int fd, size_t size, struct contents *contents)
{
	size_t done = 0;
	int err;

	contents->text = malloc(size + 1);
	if (!contents->text)
		return -ENOMEM;
	while (done < size) {
		ssize_t n = pread(fd, contents->text + done, size - done, done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += n;
	}
	contents->text[done] = 0;
	err = parse(contents, done);
	return err ? err : build_cover(contents);
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int perfmap_read(struct perfmap *perfmap, int fd)
{
	struct contents contents = {};
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	/* Reading a pipe or a device could block. */
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (perfmap->contents.text && is_unchanged(&perfmap->stat, &st))
		return 0;
	err = load(fd, st.st_size < FILE_MAX_BYTES ? st.st_size : FILE_MAX_BYTES, &contents);
	if (err) {
		contents_fini(&contents);
		return err;
	}
	contents_fini(&perfmap->contents);
	perfmap->contents = contents;
	perfmap->stat = st;
	return 0;
}

const char *perfmap_lookup(const struct perfmap *perfmap, uint64_t address)
{
	const struct contents *contents = &perfmap->contents;
	uint32_t index = contents->cover ? cover_find(contents->cover, address) : COVER_NONE;

	return index == COVER_NONE ? NULL : contents->entries[index].name;
}

size_t perfmap_malformed(const struct perfmap *perfmap)
{
	return perfmap->contents.malformed;
}
