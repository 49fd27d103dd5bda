/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "modules.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "probe/linkage.h"
#include "proc/process.h"
#include "util/log.h"

void modules_fini(struct modules *modules)
{
	free(modules->entries);
	*modules = (struct modules){};
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
		return log_error(ENOMEM, "cannot search for allocators");
	modules->entries = entries;
	entries[modules->count++] = *module;
	return 0;
}

/* The file of an image id; without an image if it does not matter. */
static struct module find_module(const struct new_files *files,
				 const struct allocator_files *others, __u32 id)
{
	struct module module = {.id = id};
	const struct allocator_file *other = allocator_files_find(others, id);

	if (other)
		module.image = other->image;
	for (size_t i = 0; i < files->count; i++) {
		if (files->entries[i].id != id)
			continue;
		module.image = files->entries[i].image;
		module.is_new = true;
	}
	return module;
}

/* The dynamic linker maps one file below the other, mostly, in the order it searches them. */
static int by_start(const void *a, const void *b)
{
	const struct module *x = a, *y = b;

	return (x->start < y->start) - (x->start > y->start);
}

int modules_of_process(pid_t pid, const struct maps *maps, const struct known_files *known,
		       const struct new_files *files, const struct allocator_files *others,
		       struct modules *ret)
{
	struct modules modules CLEANUP(modules) = {};
	char exe[4096];

	process_exe(pid, exe, sizeof(exe));
	for (size_t i = 0; i < maps->count; i++) {
		const struct mapping *mapping = &maps->entries[i];
		struct module module;
		__u32 id;
		int err;

		if (!mapping->executable || !mapping->inode)
			continue;
		id = known_files_lookup(known, mapping);
		module = find_module(files, others, id);
		if (!id || !module.image ||
		    image_bias(module.image, mapping->start, mapping->offset, &module.bias))
			continue;
		module.start = strcmp(mapping->path, exe) ? mapping->start : UINT64_MAX;
		err = add_module(&modules, &module);
		if (err)
			return err;
	}
	if (modules.count)
		qsort(modules.entries, modules.count, sizeof(*modules.entries), by_start);
	*ret = modules;
	modules = (struct modules){};
	return 0;
}

int modules_of_command(const struct new_files *files, struct modules *ret)
{
	struct modules modules CLEANUP(modules) = {};

	for (size_t i = 0; i < files->count; i++) {
		const struct module module = {
			.image = files->entries[i].image,
			.id = files->entries[i].id,
			.is_new = true,
			.bias = LINKAGE_NOT_LOADED,
		};
		int err = add_module(&modules, &module);

		if (err)
			return err;
	}
	*ret = modules;
	modules = (struct modules){};
	return 0;
}

int allocator_files_add(struct allocator_files *files, const struct module *module)
{
	int fd = fcntl(image_fd(module->image), F_DUPFD_CLOEXEC, 0);
	struct image *image CLEANUP(image) = NULL;
	struct allocator_file *entries;
	int err;

	if (fd < 0)
		return log_error(errno, "cannot keep '%s'", image_path(module->image));
	err = image_open(fd, image_path(module->image), &image);
	if (err)
		return log_error(err, "cannot keep '%s'", image_path(module->image));
	entries = reallocarray(files->entries, files->count + 1, sizeof(*entries));
	if (!entries)
		return log_error(ENOMEM, "cannot keep '%s'", image_path(module->image));
	files->entries = entries;
	entries[files->count++] = (struct allocator_file){
		.image = take_ptr(image),
		.id = module->id,
	};
	return 0;
}

struct allocator_file *allocator_files_find(const struct allocator_files *files, __u32 id)
{
	for (size_t i = 0; i < files->count; i++)
		if (files->entries[i].id == id)
			return &files->entries[i];
	return NULL;
}

void allocator_files_forget(struct allocator_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		image_forget(files->entries[i].image);
}

void allocator_files_fini(struct allocator_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		image_free(files->entries[i].image);
	free(files->entries);
}
