/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include "new_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "heaptap/unwind.h"
#include "proc/process.h"
#include "util/log.h"

/* Files that are passed over by name; then all names are forgotten, and opened once more. */
#define MAX_NAMES 65536

/* A file as mappings show it: "MAJOR:MINOR INODE PATH". */
struct known_file {
	UT_hash_handle hh;
	uint32_t id; /* 0 until it is identified */
	char name[];
};

struct known_files {
	struct kernel *kernel;
	struct known_file *by_name;
	bool full; /* this was said */
	bool by_id[UNWIND_MAX_IMAGES];
};

static void forget_names(struct known_files *known)
{
	struct known_file *file, *next;

	HASH_ITER (hh, known->by_name, file, next) {
		HASH_DEL(known->by_name, file);
		free(file);
	}
}

int known_files_new(struct kernel *kernel, struct known_files **ret)
{
	struct known_files *known = calloc(1, sizeof(*known));

	if (!known)
		return -ENOMEM;
	known->kernel = kernel;
	*ret = known;
	return 0;
}

void known_files_free(struct known_files *known)
{
	if (!known)
		return;
	forget_names(known);
	free(known);
}

static void new_file_fini(struct new_file *file)
{
	image_free(file->image);
	free(file->known);
}

void new_files_fini(struct new_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		new_file_fini(&files->entries[i]);
	free(files->entries);
}

static struct known_file *known_file_new(const struct mapping *mapping)
{
	int length = snprintf(NULL, 0, "%x:%x %" PRIu64 " %s", mapping->dev_major,
			      mapping->dev_minor, mapping->inode, mapping->path);
	struct known_file *file = calloc(1, sizeof(*file) + length + 1);

	if (file)
		snprintf(file->name, length + 1, "%x:%x %" PRIu64 " %s", mapping->dev_major,
			 mapping->dev_minor, mapping->inode, mapping->path);
	return file;
}

/* Takes the file over. That it is forgotten does no harm. */
static void remember(struct known_files *known, struct known_file *file)
{
	if (!file)
		return;
	if (HASH_COUNT(known->by_name) >= MAX_NAMES)
		forget_names(known);
	HASH_ADD_STR(known->by_name, name, file);
	if (!file->hh.tbl)
		free(file);
}

static bool is_known(const struct known_files *known, const struct new_files *files,
		     const char *name)
{
	const struct known_file *file;

	HASH_FIND_STR(known->by_name, name, file);
	for (size_t i = 0; i < files->count && !file; i++) {
		if (files->entries[i].known && !strcmp(files->entries[i].known->name, name))
			file = files->entries[i].known;
	}
	return file;
}

uint32_t known_files_lookup(const struct known_files *known, const struct mapping *mapping)
{
	_cleanup_free_ struct known_file *wanted = known_file_new(mapping);
	const struct known_file *file = NULL;

	if (wanted)
		HASH_FIND_STR(known->by_name, wanted->name, file);
	return file ? file->id : 0;
}

/*
 * Adds an opened file, unless it is no ELF file; takes the descriptor over, and known, which may be
 * NULL, if the file is added.
 */
static int open_file(struct new_files *files, int fd, const char *path, struct known_file **known)
{
	struct image *image CLEANUP(image) = NULL;
	struct new_file *entries;
	struct stat st;
	int err;

	err = image_open(fd, path, &image);
	if (err == -ENOMEM)
		return log_error(err, "cannot open '%s'", path);
	/* Not everything executable is an ELF file; frames in it keep the file's name. */
	if (err)
		return 0;
	entries = reallocarray(files->entries, files->count + 1, sizeof(*entries));
	if (!entries)
		return log_error(ENOMEM, "cannot open '%s'", path);
	files->entries = entries;
	if (fstat(image_fd(image), &st))
		st.st_size = 0;
	entries[files->count++] = (struct new_file){
		.size = st.st_size,
		.image = take_ptr(image),
		.known = known ? take_ptr(*known) : NULL,
	};
	return 0;
}

int new_files_open_paths(struct new_files *files, char *const *paths, size_t count)
{
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return log_error(errno, "cannot open '%s'", paths[i]);
		err = open_file(files, fd, paths[i], NULL);
	}
	return err;
}

/* Opens what a mapping maps, unless it is known. */
static int open_mapping(struct new_files *files, struct known_files *known, pid_t pid,
			const struct mapping *mapping)
{
	_cleanup_free_ struct known_file *file = known_file_new(mapping);
	int fd, err;

	if (!file)
		return log_error(ENOMEM, "cannot open '%s'", mapping->path);
	if (is_known(known, files, file->name))
		return 0;
	fd = maps_open_file(pid, mapping);
	/* If it is mapped again, or by another process, that is told. */
	if (fd == -ENOENT) {
		files->missed = true;
		return 0;
	}
	if (fd < 0) {
		log_warning("'%s' cannot be opened (%s): an allocator in it is not seen",
			    mapping->path, strerror(-fd));
		kernel_note_loss(known->kernel, LOSS_ALLOCATOR_MISSED, 1);
		remember(known, take_ptr(file));
		return 0;
	}
	err = open_file(files, fd, mapping->path, &file);
	/*
	 * It was no ELF file. JIT compilers make thousands of these, with an inode each; the inode
	 * of any other file may be a library's one day.
	 */
	if (!err && file && !strncmp(mapping->path, "/memfd:", 7))
		remember(known, take_ptr(file));
	return err;
}

int new_files_open_mappings(struct new_files *files, struct known_files *known, pid_t pid,
			    const struct maps *maps)
{
	char exe[4096] = "";
	int err = 0;

	process_exe(pid, exe, sizeof(exe));
	/* The program first: profiles name it as their main binary. */
	for (int program = 1; program >= 0; program--) {
		for (size_t i = 0; i < maps->count && !err; i++) {
			const struct mapping *mapping = &maps->entries[i];

			if (!mapping->executable || !mapping->inode ||
			    (strcmp(mapping->path, exe) == 0) != program)
				continue;
			err = open_mapping(files, known, pid, mapping);
		}
	}
	return err;
}

/* Whether the file stays in the list. */
static bool keep(struct known_files *known, struct new_file *file)
{
	if (file->known)
		file->known->id = file->id;
	remember(known, take_ptr(file->known));
	if (!file->id || file->id >= UNWIND_MAX_IMAGES) {
		/* A machine that has so many has more. */
		if (!known->full)
			log_warning("'%s' cannot be told from other files (the image table is "
				    "full): an allocator in it, or in another new file from now "
				    "on, is not seen",
				    image_path(file->image));
		known->full = true;
		kernel_note_loss(known->kernel, LOSS_ALLOCATOR_MISSED, 1);
		return false;
	}
	if (known->by_id[file->id])
		return false;
	known->by_id[file->id] = true;
	return true;
}

int new_files_identify(struct new_files *files, struct known_files *known)
{
	const size_t count = files->count;
	_cleanup_free_ int *fds = calloc(count + 1, sizeof(*fds));
	_cleanup_free_ __u32 *ids = calloc(count + 1, sizeof(*ids));
	int err;

	if (!fds || !ids)
		return log_error(ENOMEM, "cannot identify files");
	for (size_t i = 0; i < count; i++)
		fds[i] = image_fd(files->entries[i].image);
	err = kernel_identify(known->kernel, fds, count, ids);
	if (err)
		return log_error(err, "cannot identify files");
	files->count = 0;
	for (size_t i = 0; i < count; i++) {
		struct new_file file = files->entries[i];

		file.id = ids[i];
		if (keep(known, &file))
			files->entries[files->count++] = file;
		else
			new_file_fini(&file);
	}
	return 0;
}
