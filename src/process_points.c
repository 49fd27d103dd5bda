/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "process_points.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "probe/catalog.h"
#include "proc/process.h"
#include "util/root.h"

void process_points_free(struct process_points *process)
{
	if (!process)
		return;
	probe_points_free(process->points);
	linkage_free(process->linkage);
	runtimes_free(process->runtimes);
	locator_free(process->locator);
	for (size_t i = 0; i < process->count; i++)
		image_free(process->files[i].image);
	free(process->files);
	free(process->images);
	maps_free(process->maps);
	if (process->root_fd >= 0)
		close(process->root_fd);
	free(process);
}

size_t process_points_count(const struct process_points *process)
{
	size_t count = 0;

	for (size_t i = 0; i < process->count; i++)
		count += process->points->modules[i].count;
	return count;
}

static int variable(void *arg, const char *name, char *value, size_t size)
{
	const struct process_points *process = arg;

	return process_variable(process->pid, name, value, size);
}

static bool is_wanted(const char *name, void *arg)
{
	const struct process_points_options *options = arg;
	unsigned int family;

	return catalog_lookup(name, options->symbol_prefix, &family);
}

/* Whether an earlier mapping was of the same file. */
static bool is_seen(const struct maps *maps, size_t index)
{
	const struct mapping *mapping = &maps->entries[index];

	for (size_t i = 0; i < index; i++) {
		const struct mapping *other = &maps->entries[i];

		if (other->executable && other->inode == mapping->inode &&
		    other->dev_major == mapping->dev_major &&
		    other->dev_minor == mapping->dev_minor && !strcmp(other->path, mapping->path))
			return true;
	}
	return false;
}

static int add_file(struct process_points *process, const struct mapping *mapping, const char *exe)
{
	struct image *image CLEANUP(image) = NULL;
	int fd = maps_open_file(process->pid, mapping), err;
	struct process_file *files;
	uint64_t bias;

	if (fd < 0) {
		if (!process->unopened_count++) {
			process->unopened = mapping->path;
			process->unopened_err = fd;
		}
		return 0;
	}
	err = image_open(fd, mapping->path, &image);
	/* Not everything executable is an ELF file. */
	if (err || image_bias(image, mapping->start, mapping->offset, &bias))
		return err == -ENOMEM ? err : 0;
	files = reallocarray(process->files, process->count + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	process->files = files;
	files[process->count++] = (struct process_file){
		.image = take_ptr(image),
		.bias = bias,
		.start = strcmp(mapping->path, exe) ? mapping->start : UINT64_MAX,
	};
	return 0;
}

/* The dynamic linker maps one file below the other, mostly, in the order it searches them. */
static int by_start(const void *a, const void *b)
{
	const struct process_file *x = a, *y = b;

	return (x->start < y->start) - (x->start > y->start);
}

static int open_files(struct process_points *process)
{
	const struct maps *maps = process->maps;
	char exe[4096];
	int err = 0;

	process_exe(process->pid, exe, sizeof(exe));
	for (size_t i = 0; i < maps->count && !err; i++) {
		const struct mapping *mapping = &maps->entries[i];

		if (mapping->executable && mapping->inode && !is_seen(maps, i))
			err = add_file(process, mapping, exe);
	}
	if (err)
		return err;
	if (process->count)
		qsort(process->files, process->count, sizeof(*process->files), by_start);
	process->images = calloc(process->count + 1, sizeof(*process->images));
	if (!process->images)
		return -ENOMEM;
	for (size_t i = 0; i < process->count; i++)
		process->images[i] = process->files[i].image;
	return 0;
}

static int note_runtimes(struct process_points *process)
{
	int err = runtimes_new(variable, process, &process->runtimes);

	for (size_t i = 0; i < process->count && !err; i++)
		err = runtimes_note_image(process->runtimes, process->files[i].image);
	return err;
}

/* Looks elsewhere for the functions of a program that names none. */
static int locate_functions(struct process_points *process,
			    const struct process_points_options *options, uint32_t index)
{
	_cleanup_free_ struct located_function *located = NULL;
	struct image *image = process->files[index].image;
	size_t count;
	int err;

	linkage_functions(process->linkage, index, &count);
	if (count || (!locate_is_static(image) && !options->signature_file_count))
		return 0;
	err = locate_more(process->locator, image, is_wanted, (void *)options, &located, &count);
	for (size_t i = 0; i < count && !err; i++)
		if (!located[i].ifunc)
			err = linkage_add_function(process->linkage, index, located[i].name,
						   located[i].start, located[i].size);
	return err;
}

static int find_points(struct process_points *process, const struct process_points_options *options)
{
	const struct locate_options locate = {
		.signature_files = options->signature_files,
		.signature_file_count = options->signature_file_count,
		.debug_dirs = options->debug_dirs,
		.debug_dir_count = options->debug_dir_count,
		.root_fd = process->root_fd,
		.download = true,
	};
	const struct points_options points = {.plain_entries = options->plain_entries};
	_cleanup_close_ int memory_fd = -1;
	char path[64];
	int err;

	/* Without it, the files alone tell how allocation functions call each other. */
	snprintf(path, sizeof(path), "/proc/%d/mem", process->pid);
	memory_fd = open(path, O_RDONLY | O_CLOEXEC);
	err = locator_new(&locate, &process->locator);
	if (!err)
		err = linkage_new(memory_fd, options->symbol_prefix, &process->linkage);
	for (size_t i = 0; i < process->count && !err; i++)
		err = linkage_add(process->linkage, process->files[i].image,
				  process->files[i].bias);
	for (size_t i = 0; i < process->count && !err; i++)
		err = locate_functions(process, options, i);
	return err ? err : probe_points_find(process->linkage, &points, &process->points);
}

int process_points_find(pid_t pid, const struct process_points_options *options,
			struct process_points **ret)
{
	struct process_points *process CLEANUP(process_points) = calloc(1, sizeof(*process));
	char path[64];
	int err;

	if (!process)
		return -ENOMEM;
	process->pid = pid;
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	process->root_fd = root_open(path);
	err = maps_read(pid, &process->maps);
	if (!err)
		err = open_files(process);
	if (!err)
		err = note_runtimes(process);
	if (!err)
		err = find_points(process, options);
	if (err)
		return err;
	*ret = take_ptr(process);
	return 0;
}
