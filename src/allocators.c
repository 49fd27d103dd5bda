/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A call goes in steps over the list of its new files: open them all, learn their image ids and
 * drop those that are known, publish unwind tables, find the probe points, place the probes, and
 * hand the files to images. For files that come late the probes are before the tables. What a file
 * is, is told by its image id; the names and inodes that a process's mappings show only save us
 * from opening it again.
 */
#define HASH_NONFATAL_OOM 1

#include "allocators.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "heaptap/unwind.h"
#include "probe/linkage.h"
#include "probe/points.h"
#include "proc/maps.h"
#include "util/clock.h"
#include "util/log.h"

/* Files whose names an error message lists before it says "and N more". */
#define MAX_NAMED_FILES 4

/* The unwind table of a smaller file is built before its late probes: that takes 10 ms. */
#define LATE_TABLE_BYTES (1 << 20)

/* A file as mappings show it: "MAJOR:MINOR INODE PATH". */
struct known_file {
	UT_hash_handle hh;
	__u32 id; /* 0 until it is known */
	char key[];
};

/* A file that is being taken in. */
struct new_file {
	struct image *image;
	struct known_file *known; /* to be remembered; NULL for a command's */
	uint64_t size;
	__u32 id; /* 0: the kernel side gives it none */
	bool has_table;
};

struct new_files {
	struct new_file *entries;
	size_t count;
	bool late;	   /* the process runs on: probes come first, and errors of one file pass */
	uint64_t since_ns; /* late: when the first was mapped, or 0 */
	bool missed;	   /* one was gone before it could be opened */
};

/* A file that has functions of the catalog: what comes later may call them, or be called. */
struct allocator_file {
	struct image *image; /* a handle of our own */
	__u32 id;
	bool throw_probed; /* exceptions that begin in it are let through */
};

/* One file of a process, while its probe points are searched. */
struct module {
	struct image *image;
	__u32 id;
	bool is_new;
	uint64_t bias;
	uint64_t start; /* of its first mapping; UINT64_MAX: the program */
};

struct modules {
	struct module *entries;
	size_t count;
};

struct allocators {
	struct allocators_context context;
	struct known_file *known;
	struct allocator_file *files;
	size_t file_count;
	bool taken[UNWIND_MAX_IMAGES]; /* by image id */
	bool may_come;
	struct allocators_late late;
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
	for (size_t i = 0; i < allocators->file_count; i++)
		image_free(allocators->files[i].image);
	free(allocators->files);
	free(allocators);
}

static void new_file_fini(struct new_file *file)
{
	image_free(file->image);
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
	if (fd == -ENOENT && files->late) {
		files->missed = true;
		return 0;
	}
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
	known->id = file->id;
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
		order[i]->has_table = true;
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

static void cleanup_modules(struct modules *modules)
{
	free(modules->entries);
}

/* Takes a file in once; of several mappings the first counts. */
static int add_module(struct modules *modules, const struct module *module)
{
	struct module *entries;

	for (size_t i = 0; i < modules->count; i++)
		if (modules->entries[i].id == module->id)
			return 0;
	entries = reallocarray(modules->entries, modules->count + 1, sizeof(*entries));
	if (!entries)
		return log_error(ENOMEM, "search for allocators");
	modules->entries = entries;
	entries[modules->count++] = *module;
	return 0;
}

/* The file of an image id, among the new ones and those that have allocation functions. */
static struct module module_of(const struct allocators *allocators, const struct new_files *files,
			       __u32 id)
{
	for (size_t i = 0; i < files->count; i++)
		if (files->entries[i].id == id)
			return (struct module){
				.image = files->entries[i].image,
				.id = id,
				.is_new = true,
			};
	for (size_t i = 0; i < allocators->file_count; i++)
		if (allocators->files[i].id == id)
			return (struct module){.image = allocators->files[i].image, .id = id};
	return (struct module){};
}

/* The dynamic linker maps one file below the other, mostly, in the order it searches them. */
static int by_start(const void *a, const void *b)
{
	const struct module *x = a, *y = b;

	return (x->start < y->start) - (x->start > y->start);
}

static int find_modules_of_process(const struct allocators *allocators,
				   const struct new_files *files, pid_t pid,
				   const struct maps *maps, struct modules *modules)
{
	char exe[4096] = "";
	int err = 0;

	read_exe(pid, exe, sizeof(exe));
	for (size_t i = 0; i < maps->count && !err; i++) {
		const struct mapping *mapping = &maps->entries[i];
		_cleanup_free_ struct known_file *key = NULL;
		struct known_file *known;
		struct module module;
		uint64_t vaddr;

		if (!mapping->executable || !mapping->inode)
			continue;
		key = known_file_new(mapping);
		if (!key)
			return log_error(ENOMEM, "search for allocators");
		HASH_FIND_STR(allocators->known, key->key, known);
		if (!known)
			continue;
		module = module_of(allocators, files, known->id);
		if (!module.image || image_offset_to_vaddr(module.image, mapping->offset, &vaddr))
			continue;
		module.bias = mapping->start - vaddr;
		module.start = strcmp(mapping->path, exe) ? mapping->start : UINT64_MAX;
		err = add_module(modules, &module);
	}
	if (modules->count)
		qsort(modules->entries, modules->count, sizeof(*modules->entries), by_start);
	return err;
}

static int find_modules_of_command(const struct new_files *files, struct modules *modules)
{
	int err = 0;

	for (size_t i = 0; i < files->count && !err; i++) {
		const struct module module = {
			.image = files->entries[i].image,
			.id = files->entries[i].id,
			.is_new = true,
			.bias = LINKAGE_NOT_LOADED,
		};

		err = add_module(modules, &module);
	}
	return err;
}

static void log_points(const struct image *image, const struct module_points *points)
{
	for (size_t i = 0; i < points->count; i++) {
		const struct probe_point *point = &points->entries[i];

		log_verbose("Probe point: %s %s+%llu%s%s", image_path(image), point->name,
			    (unsigned long long)(point->spec.offset - point->entry_offset),
			    point->why_entry ? ": the entry, as " : "",
			    point->why_entry ? point->why_entry : "");
	}
	for (size_t i = 0; i < points->left_out_count; i++) {
		const struct left_out *left_out = &points->left_out[i];

		log_verbose("Not probed: %s %s: %s%s%s", image_path(image), left_out->name,
			    left_out->reason, left_out->other ? ", " : "",
			    left_out->other ? left_out->other : "");
	}
}

static int add_nested_calls(struct allocators *allocators, const struct module *module,
			    const struct module_points *points)
{
	struct kernel *kernel = allocators->context.kernel;
	int err = 0;

	for (size_t i = 0; i < points->nested_count && !err; i++)
		err = kernel_add_nested_call(kernel, allocators->probed, points->nested[i]);
	for (size_t i = 0; i < points->foreign_count && !err; i++)
		err = kernel_add_foreign_call(kernel, module->id, points->foreign[i]);
	if (err == -E2BIG)
		log_warning("more than %d calls between allocation functions: what '%s' allocates "
			    "may be counted twice",
			    PROBE_MAX_NESTED_CALLS, image_path(module->image));
	return err == -E2BIG ? 0 : err;
}

/* The stacks of an allocator go through its own file first. */
static void build_late_table(struct allocators *allocators, struct new_files *files, __u32 id)
{
	for (size_t i = 0; i < files->count; i++) {
		struct new_file *file = &files->entries[i];

		if (file->id == id && file->size < LATE_TABLE_BYTES)
			file->has_table = !tables_try_build(allocators->context.tables, file->id,
							    file->image);
	}
}

/* A late file has got its probes. */
static void report_late(struct allocators *allocators, const struct module *module,
			const struct module_points *points, uint64_t since_ns)
{
	uint64_t after_ns = since_ns ? clock_ns(CLOCK_MONOTONIC) - since_ns : 0;
	struct allocators_late *late = &allocators->late;
	char after[32] = "";

	if (since_ns)
		snprintf(after, sizeof(after), " after %.0f ms", after_ns / 1e6);
	late->count++;
	if (after_ns > late->longest_ns)
		late->longest_ns = after_ns;
	log_info("Allocator found in %s (loaded later): %zu probe points%s; what was allocated in "
		 "it before is not counted",
		 image_path(module->image), points->count, after);
}

/* Places the probes of one file, if it has an allocator. */
static int attach_module(struct allocators *allocators, struct new_files *files,
			 const struct module *module, struct module_points *points)
{
	const char *path = image_path(module->image);
	int err;

	log_points(module->image, points);
	if (!points->count)
		return 0;
	if (allocators->probed == PROBE_MAX_IMAGES) {
		log_warning("more than %d files with allocators: '%s' is not probed",
			    PROBE_MAX_IMAGES, path);
		return 0;
	}
	for (size_t i = 0; i < points->count; i++)
		points->entries[i].spec.image = allocators->probed;
	if (files->late)
		build_late_table(allocators, files, module->id);
	err = add_nested_calls(allocators, module, points);
	if (!err)
		err = attach_points(allocators->context.attach, image_fd(module->image), points);
	if (err == -ESRCH)
		return err;
	if (err)
		return log_error(err, "place probes in '%s'", path);
	allocators->probed++;
	if (files->late)
		report_late(allocators, module, points, files->since_ns);
	return 0;
}

/* Keeps a handle of our own of a file that has functions of the catalog. */
static int keep_file(struct allocators *allocators, const struct module *module)
{
	int fd = fcntl(image_fd(module->image), F_DUPFD_CLOEXEC, 0);
	struct image *image CLEANUP(image) = NULL;
	struct allocator_file *files;
	int err;

	if (fd < 0)
		return log_error(errno, "keep '%s'", image_path(module->image));
	err = image_open(fd, image_path(module->image), &image);
	if (err)
		return log_error(err, "keep '%s'", image_path(module->image));
	files = reallocarray(allocators->files, allocators->file_count + 1, sizeof(*files));
	if (!files)
		return log_error(ENOMEM, "keep '%s'", image_path(module->image));
	allocators->files = files;
	files[allocators->file_count++] = (struct allocator_file){
		.image = take_ptr(image),
		.id = module->id,
	};
	return 0;
}

/* Notes what was searched, and keeps files that matter to those that come later. */
static int take_in_module(struct allocators *allocators, const struct linkage *linkage,
			  const struct module *module, uint32_t index,
			  const struct module_points *points)
{
	size_t count;

	if (!module->is_new)
		return 0;
	note_searched(allocators, image_path(module->image));
	if (image_interpreter(module->image))
		allocators->may_come = true;
	linkage_functions(linkage, index, &count);
	return count || points->has_unwinder ? keep_file(allocators, module) : 0;
}

static struct allocator_file *find_file(struct allocators *allocators, __u32 id)
{
	for (size_t i = 0; i < allocators->file_count; i++)
		if (allocators->files[i].id == id)
			return &allocators->files[i];
	return NULL;
}

/* Before the first function that may throw gets its probe. */
static int attach_throws(struct allocators *allocators, const struct modules *modules,
			 const struct probe_points *points)
{
	bool wanted = false;

	for (size_t i = 0; i < modules->count; i++)
		wanted |= points->modules[i].throws && modules->entries[i].is_new;
	for (size_t i = 0; i < modules->count && wanted; i++) {
		struct allocator_file *file = find_file(allocators, modules->entries[i].id);
		const char *path = image_path(modules->entries[i].image);
		int err;

		if (!points->modules[i].has_unwinder || !file || file->throw_probed)
			continue;
		err = attach_throw(allocators->context.attach, image_fd(file->image),
				   points->modules[i].throw_offset);
		if (err == -ESRCH)
			return err;
		if (err)
			return log_error(err, "place the probe for exceptions in '%s'", path);
		file->throw_probed = true;
		log_verbose("Probe point: %s where exceptions begin", path);
	}
	return 0;
}

static int attach_modules(struct allocators *allocators, struct new_files *files,
			  const struct modules *modules, struct linkage *linkage)
{
	const struct points_options options = {
		.plain_entries = allocators->context.plain_entries,
	};
	struct probe_points *points CLEANUP(probe_points) = NULL;
	int err;

	err = probe_points_find(linkage, &options, &points);
	if (err)
		return log_error(err, "search for allocators");
	if (points->truncated)
		log_warning("the code of an allocator is too large to see all calls between its "
			    "functions: what they allocate may be counted twice");
	for (size_t i = 0; i < modules->count && !err; i++)
		err = take_in_module(allocators, linkage, &modules->entries[i], i,
				     &points->modules[i]);
	if (!err)
		err = attach_throws(allocators, modules, points);
	for (size_t i = 0; i < modules->count && !err; i++) {
		if (modules->entries[i].is_new)
			err = attach_module(allocators, files, &modules->entries[i],
					    &points->modules[i]);
		/* What goes wrong with one late file is printed, and the others are taken in. */
		if (files->late && err != -ESRCH && err != -ENOMEM)
			err = 0;
	}
	return err;
}

/* Finds the probe points in the new files among the modules, and places the probes. */
static int probe_modules(struct allocators *allocators, struct new_files *files,
			 const struct modules *modules, int memory_fd)
{
	struct linkage *linkage CLEANUP(linkage) = NULL;
	int err;

	err = linkage_new(memory_fd, NULL, &linkage);
	for (size_t i = 0; i < modules->count && !err; i++)
		err = linkage_add(linkage, modules->entries[i].image, modules->entries[i].bias);
	if (err)
		return log_error(err, "search for allocators");
	return attach_modules(allocators, files, modules, linkage);
}

/* The images keep the files open. */
static int give_file(struct allocators *allocators, struct new_file *file)
{
	int err;

	/* Without its table, stacks are cut there, and say so. */
	if (!file->has_table)
		tables_request(allocators->context.tables, file->id, file->image, false);
	err = images_add_file(allocators->context.images, file->id, take_ptr(file->image));
	return err ? log_error(err, "keep the target's files") : 0;
}

/* pid and maps: of the process that maps the files; maps is NULL for a command. */
static int take_in(struct allocators *allocators, struct new_files *files, pid_t pid,
		   const struct maps *maps)
{
	struct modules modules CLEANUP(modules) = {};
	_cleanup_close_ int memory_fd = -1;
	char path[64];
	int err;

	err = identify(allocators, files);
	if (!err && !files->late)
		err = build_tables(allocators, files);
	if (!err)
		err = maps ? find_modules_of_process(allocators, files, pid, maps, &modules)
			   : find_modules_of_command(files, &modules);
	if (err)
		return err;
	if (maps) {
		/* Without it, the files alone tell how allocation functions call each other. */
		snprintf(path, sizeof(path), "/proc/%d/mem", pid);
		memory_fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	err = probe_modules(allocators, files, &modules, memory_fd);
	for (size_t i = 0; i < files->count && !err; i++)
		err = give_file(allocators, &files->entries[i]);
	return err;
}

int allocators_add_files(struct allocators *allocators, char *const *paths, size_t count)
{
	struct new_files files CLEANUP(new_files) = {};
	int err;

	err = open_paths(&files, paths, count);
	return err ? err : take_in(allocators, &files, 0, NULL);
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
		err = take_in(allocators, &files, pid, maps);
	if (!err)
		images_locate(allocators->context.images, maps);
	return err;
}

int allocators_add_late(struct allocators *allocators, pid_t pid, const struct maps *maps,
			uint64_t since_ns)
{
	struct new_files files CLEANUP(new_files) = {.late = true, .since_ns = since_ns};
	int err;

	err = open_mappings(allocators, &files, pid, maps);
	if (!err)
		err = take_in(allocators, &files, pid, maps);
	if (err)
		return err;
	images_locate(allocators->context.images, maps);
	return files.missed ? -EAGAIN : (int)files.count;
}

struct allocators_late allocators_late(const struct allocators *allocators)
{
	return allocators->late;
}

bool allocators_may_come(const struct allocators *allocators)
{
	return allocators->may_come;
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
