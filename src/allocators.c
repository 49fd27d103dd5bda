/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A call goes in steps over the list of its new files: open them all, learn their image ids and
 * drop those that are known, publish unwind tables, find the probe points, place the probes, and
 * hand the files to images. What a file is, is told by its image id; the names and inodes that a
 * process's mappings show only save us from opening it again.
 */
#define HASH_NONFATAL_OOM 1

#include "allocators.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "elf/symtab.h"
#include "heaptap/unwind.h"
#include "proc/maps.h"
#include "util/log.h"

/* Files whose names an error message lists before it says "and N more". */
#define MAX_NAMED_FILES 4

/* A file as mappings show it: "MAJOR:MINOR INODE PATH". */
struct known_file {
	UT_hash_handle hh;
	char key[];
};

/* A file that is being taken in. */
struct new_file {
	struct image *image;
	struct probe_points *points;
	struct known_file *known; /* to be remembered; NULL for a command's */
	uint64_t size;
	__u32 id; /* 0: the kernel side gives it none */
};

struct new_files {
	struct new_file *entries;
	size_t count;
};

struct allocators {
	struct allocators_context context;
	struct known_file *known;
	bool taken[UNWIND_MAX_IMAGES]; /* by image id */
	size_t probed;
	size_t searched;
	char searched_names[256];
};

int allocators_new(const struct allocators_context *context, struct allocators **ret)
{
	struct allocators *allocators = calloc(1, sizeof(*allocators));

	if (!allocators)
		return -ENOMEM;
	allocators->context = *context;
	*ret = allocators;
	return 0;
}

void allocators_free(struct allocators *allocators)
{
	struct known_file *file, *next;

	if (!allocators)
		return;
	HASH_ITER (hh, allocators->known, file, next) {
		HASH_DEL(allocators->known, file);
		free(file);
	}
	free(allocators);
}

static void new_file_fini(struct new_file *file)
{
	image_free(file->image);
	probe_points_free(file->points);
	free(file->known);
}

static void cleanup_new_files(struct new_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		new_file_fini(&files->entries[i]);
	free(files->entries);
}

/* Adds an opened file; takes the descriptor over. known: see struct new_file; taken over too. */
static int open_file(struct new_files *files, int fd, const char *path, struct known_file *known)
{
	_cleanup_free_ struct known_file *owned = known;
	struct image *image CLEANUP(image) = NULL;
	struct new_file *entries;
	struct stat st;
	uint64_t size;
	int err;

	err = image_open(fd, path, &image);
	if (err == -ENOMEM)
		return log_error(err, "open '%s'", path);
	/* Not everything executable is an ELF file; frames in it keep the file's name. */
	if (err)
		return 0;
	entries = reallocarray(files->entries, files->count + 1, sizeof(*entries));
	if (!entries)
		return log_error(ENOMEM, "open '%s'", path);
	files->entries = entries;
	size = fstat(image_fd(image), &st) ? 0 : st.st_size;
	entries[files->count++] = (struct new_file){
		.size = size,
		.image = take_ptr(image),
		.known = take_ptr(owned),
	};
	return 0;
}

static int open_paths(struct new_files *files, char *const *paths, size_t count)
{
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return log_error(errno, "open '%s'", paths[i]);
		err = open_file(files, fd, paths[i], NULL);
	}
	return err;
}

static struct known_file *known_file_new(const struct mapping *mapping)
{
	int length = snprintf(NULL, 0, "%x:%x %" PRIx64 " %s", mapping->dev_major,
			      mapping->dev_minor, mapping->inode, mapping->path);
	struct known_file *file = calloc(1, sizeof(*file) + length + 1);

	if (file)
		snprintf(file->key, length + 1, "%x:%x %" PRIx64 " %s", mapping->dev_major,
			 mapping->dev_minor, mapping->inode, mapping->path);
	return file;
}

static bool is_known(const struct allocators *allocators, const struct new_files *files,
		     const char *key)
{
	const struct known_file *file;

	HASH_FIND_STR(allocators->known, key, file);
	for (size_t i = 0; i < files->count && !file; i++) {
		if (files->entries[i].known && !strcmp(files->entries[i].known->key, key))
			file = files->entries[i].known;
	}
	return file;
}

/* Opens what a mapping maps, unless it is known. */
static int open_mapping(const struct allocators *allocators, struct new_files *files, pid_t pid,
			const struct mapping *mapping)
{
	_cleanup_free_ struct known_file *known = known_file_new(mapping);
	int fd;

	if (!known)
		return log_error(ENOMEM, "open '%s'", mapping->path);
	if (is_known(allocators, files, known->key))
		return 0;
	fd = maps_open_file(pid, mapping);
	if (fd < 0) {
		log_warning("'%s' cannot be opened (%s): an allocator in it is not seen",
			    mapping->path, strerror(-fd));
		return 0;
	}
	return open_file(files, fd, mapping->path, take_ptr(known));
}

/* The path of the program itself, without the mark of a deleted file. */
static bool read_exe(pid_t pid, char *path, size_t size)
{
	static const char deleted[] = " (deleted)";
	char link[64];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	length = readlink(link, path, size - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	if (length > (ssize_t)sizeof(deleted) - 1 &&
	    !strcmp(path + length - (sizeof(deleted) - 1), deleted))
		path[length - (sizeof(deleted) - 1)] = '\0';
	return true;
}

static int open_mappings(const struct allocators *allocators, struct new_files *files, pid_t pid,
			 const struct maps *maps)
{
	char exe[4096] = "";
	int err = 0;

	read_exe(pid, exe, sizeof(exe));
	/* The program first: profiles name it as their main binary. */
	for (int program = 1; program >= 0; program--) {
		for (size_t i = 0; i < maps->count && !err; i++) {
			const struct mapping *mapping = &maps->entries[i];

			if (!mapping->executable || !mapping->inode ||
			    (strcmp(mapping->path, exe) == 0) != program)
				continue;
			err = open_mapping(allocators, files, pid, mapping);
		}
	}
	return err;
}

/* From now on the file's mappings are passed over. That it is forgotten does no harm. */
static void remember(struct allocators *allocators, struct new_file *file)
{
	struct known_file *known = take_ptr(file->known);

	if (!known)
		return;
	HASH_ADD_STR(allocators->known, key, known);
	if (!known->hh.tbl)
		free(known);
}

/* Learns the files' image ids, and drops the files that were taken in under another name. */
static int identify(struct allocators *allocators, struct new_files *files)
{
	const size_t count = files->count;
	_cleanup_free_ int *fds = calloc(count + 1, sizeof(*fds));
	_cleanup_free_ __u32 *ids = calloc(count + 1, sizeof(*ids));
	int err;

	if (!fds || !ids)
		return log_error(ENOMEM, "identify files");
	for (size_t i = 0; i < count; i++)
		fds[i] = image_fd(files->entries[i].image);
	err = kernel_identify(allocators->context.kernel, fds, count, ids);
	if (err)
		return log_error(err, "identify files");
	files->count = 0;
	for (size_t i = 0; i < count; i++) {
		struct new_file file = files->entries[i];

		file.id = ids[i];
		remember(allocators, &file);
		if (!file.id || file.id >= UNWIND_MAX_IMAGES)
			log_warning("'%s' cannot be told from other files (the image table is "
				    "full): an allocator in it is not seen",
				    image_path(file.image));
		else if (!allocators->taken[file.id]) {
			allocators->taken[file.id] = true;
			files->entries[files->count++] = file;
			continue;
		}
		new_file_fini(&file);
	}
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const struct new_file *x = *(const struct new_file *const *)a;
	const struct new_file *y = *(const struct new_file *const *)b;

	return (x->size > y->size) - (x->size < y->size);
}

/* Publishes the tables of all files, so that the first stack finds them; small files first. */
static int build_tables(struct allocators *allocators, const struct new_files *files)
{
	_cleanup_free_ struct new_file **order = calloc(files->count + 1, sizeof(*order));
	int err;

	if (!order)
		return log_error(ENOMEM, "build unwind tables");
	for (size_t i = 0; i < files->count; i++)
		order[i] = &files->entries[i];
	qsort(order, files->count, sizeof(*order), by_size);
	for (size_t i = 0; i < files->count; i++) {
		err = tables_build(allocators->context.tables, order[i]->id, order[i]->image);
		if (err)
			log_warning(
				"no unwind table for '%s' (%s): stacks through it are cut there",
				image_path(order[i]->image), strerror(-err));
	}
	return 0;
}

static void note_searched(struct allocators *allocators, const char *path)
{
	char *names = allocators->searched_names;
	size_t length = strlen(names);

	if (allocators->searched++ < MAX_NAMED_FILES)
		snprintf(names + length, sizeof(allocators->searched_names) - length, "%s%s",
			 length ? ", " : "", path);
}

static int find_points(struct allocators *allocators, struct new_file *file)
{
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int err;

	note_searched(allocators, image_path(file->image));
	err = symtab_load(file->image, &symtab);
	if (err == -ENOENT || err == -ENOEXEC)
		return 0;
	if (!err)
		err = probe_points_find(file->image, symtab, &file->points);
	return err ? log_error(err, "search '%s' for an allocator", image_path(file->image)) : 0;
}

static void log_points(const struct new_file *file)
{
	for (size_t i = 0; i < file->points->count; i++) {
		const struct probe_point *point = &file->points->entries[i];

		log_verbose("Probe point: %s %s+%llu%s%s", image_path(file->image), point->name,
			    (unsigned long long)(point->spec.offset - point->entry_offset),
			    point->why_entry ? ": the entry, as " : "",
			    point->why_entry ? point->why_entry : "");
	}
}

/* Places the probes of one file, if it has an allocator. */
static int attach_file(struct allocators *allocators, struct new_file *file)
{
	struct probe_points *points = file->points;
	const char *path = image_path(file->image);
	int err;

	if (!points || !points->count)
		return 0;
	if (allocators->probed == PROBE_MAX_IMAGES) {
		log_warning("more than %d files with allocators: '%s' is not probed",
			    PROBE_MAX_IMAGES, path);
		return 0;
	}
	for (size_t i = 0; i < points->count; i++)
		points->entries[i].spec.image = allocators->probed;
	log_points(file);
	err = kernel_set_nested_calls(allocators->context.kernel, allocators->probed,
				      &points->nested);
	if (!err)
		err = attach_points(allocators->context.attach, image_fd(file->image), points);
	if (err == -ESRCH)
		return err;
	if (err)
		return log_error(err, "place probes in '%s'", path);
	allocators->probed++;
	return 0;
}

/* The images keep the files open. */
static int give_file(struct allocators *allocators, struct new_file *file)
{
	int err = images_add_file(allocators->context.images, file->id, take_ptr(file->image));

	return err ? log_error(err, "keep the target's files") : 0;
}

static int take_in(struct allocators *allocators, struct new_files *files)
{
	int err;

	err = identify(allocators, files);
	if (!err)
		err = build_tables(allocators, files);
	for (size_t i = 0; i < files->count && !err; i++)
		err = find_points(allocators, &files->entries[i]);
	for (size_t i = 0; i < files->count && !err; i++)
		err = attach_file(allocators, &files->entries[i]);
	for (size_t i = 0; i < files->count && !err; i++)
		err = give_file(allocators, &files->entries[i]);
	return err;
}

int allocators_add_files(struct allocators *allocators, char *const *paths, size_t count)
{
	struct new_files files CLEANUP(new_files) = {};
	int err;

	err = open_paths(&files, paths, count);
	return err ? err : take_in(allocators, &files);
}

int allocators_add_process(struct allocators *allocators, pid_t pid)
{
	struct new_files files CLEANUP(new_files) = {};
	struct maps *maps CLEANUP(maps) = NULL;
	int err;

	err = maps_read(pid, &maps);
	if (err == -ESRCH)
		return err;
	if (err)
		return log_error(err, "read /proc/%d/maps", pid);
	err = open_mappings(allocators, &files, pid, maps);
	if (!err)
		err = take_in(allocators, &files);
	if (!err)
		images_locate(allocators->context.images, maps);
	return err;
}

size_t allocators_count(const struct allocators *allocators)
{
	return allocators->probed;
}

int allocators_report_none(const struct allocators *allocators, pid_t pid, const char *comm)
{
	if (allocators->searched > MAX_NAMED_FILES)
		return log_error(
			0,
			"no allocator found in %d (%s): neither %s nor the %zu files after "
			"them have symbols for malloc and free; a statically linked "
			"program must not be stripped",
			pid, comm, allocators->searched_names,
			allocators->searched - MAX_NAMED_FILES);
	return log_error(0,
			 "no allocator found in %d (%s): %s has no symbols for malloc and free; a "
			 "statically linked program must not be stripped",
			 pid, comm, allocators->searched_names);
}
