/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/images.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "proc/maps.h"

struct images {
	struct image_entry **by_id; /* index is the id */
	size_t id_count;
	struct image_entry **prepared; /* owns the images; entries that were met share them */
	size_t prepared_count;
};

int images_new(struct images **ret)
{
	struct images *images = calloc(1, sizeof(*images));

	if (!images)
		return -ENOMEM;
	*ret = images;
	return 0;
}

static void entry_free(struct image_entry *entry)
{
	if (!entry)
		return;
	free(entry->path);
	free(entry);
}
DEFINE_CLEANUP(entry, struct image_entry *, entry_free)

void images_free(struct images *images)
{
	if (!images)
		return;
	for (size_t i = 0; i < images->id_count; i++)
		entry_free(images->by_id[i]);
	for (size_t i = 0; i < images->prepared_count; i++) {
		image_free(images->prepared[i]->image);
		entry_free(images->prepared[i]);
	}
	free(images->by_id);
	free(images->prepared);
	free(images);
}

static uint64_t file_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_size;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int images_prepare(struct images *images, struct image *image, uint64_t start, uint64_t end,
		   uint64_t offset)
{
	struct image *owned CLEANUP(image) = image;
	struct image_entry *entry CLEANUP(entry) = calloc(1, sizeof(*entry));
	struct image_entry **prepared;

	if (!entry)
		return -ENOMEM;
	entry->path = strdup(image_path(image));
	if (!entry->path)
		return -ENOMEM;
	prepared = reallocarray(images->prepared, images->prepared_count + 1, sizeof(*prepared));
	if (!prepared)
		return -ENOMEM;
	images->prepared = prepared;
	entry->start = start;
	entry->end = end;
	entry->offset = offset;
	entry->size = file_size(image_fd(image));
	entry->image = take_ptr(owned);
	prepared[images->prepared_count++] = take_ptr(entry);
	return 0;
}

/* A prepared file with this content, this size and name, or NULL. */
static struct image_entry *find_prepared(struct images *images, const char *build_id,
					 const char *name, uint64_t size)
{
	for (size_t i = 0; i < images->prepared_count; i++) {
		struct image_entry *entry = images->prepared[i];

		if (build_id ? *build_id && !strcmp(image_build_id(entry->image), build_id)
			     : size && entry->size == size &&
				       !strncmp(base_name(entry->path), name, IMAGE_NAME_SIZE - 1))
			return entry;
	}
	return NULL;
}

/* Opens the sight's file through the process that maps it. */
static int open_sight(const struct image_sight *sight, struct image **ret)
{
	struct maps *maps CLEANUP(maps) = NULL;
	const struct mapping *mapping;
	int fd, err;

	err = maps_read(sight->tgid, &maps);
	if (err)
		return err;
	mapping = maps_find(maps, sight->start);
	if (!mapping || !mapping->inode)
		return -ENOENT;
	fd = maps_open_file(sight->tgid, mapping);
	if (fd < 0)
		return fd;
	return image_open(fd, mapping->path, ret);
}

static int make_room(struct images *images, uint32_t id)
{
	size_t count = (size_t)id + 1;
	struct image_entry **by_id;

	if (count <= images->id_count)
		return 0;
	by_id = reallocarray(images->by_id, count, sizeof(*by_id));
	if (!by_id)
		return -ENOMEM;
	memset(by_id + images->id_count, 0, (count - images->id_count) * sizeof(*by_id));
	images->by_id = by_id;
	images->id_count = count;
	return 0;
}

int images_add(struct images *images, const struct image_sight *sight)
{
	struct image_entry *entry CLEANUP(entry) = NULL;
	struct image *image CLEANUP(image) = NULL;
	struct image_entry *prepared;
	int err;

	if (sight->id > FRAME_IMAGE_MAX)
		return -EINVAL;
	if (images_lookup(images, sight->id))
		return 0;
	err = make_room(images, sight->id);
	if (err)
		return err;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->id = sight->id;
	entry->start = sight->start;
	entry->end = sight->end;
	entry->offset = sight->offset;

	err = open_sight(sight, &image);
	if (err == -ENOMEM)
		return err;
	prepared = find_prepared(images, image ? image_build_id(image) : NULL, sight->name,
				 sight->file_size);
	if (!prepared && image) {
		err = images_prepare(images, take_ptr(image), sight->start, sight->end,
				     sight->offset);
		if (err)
			return err;
		prepared = images->prepared[images->prepared_count - 1];
	}
	if (prepared) {
		entry->image = prepared->image;
		/* The main program may have been prepared before it had an address. */
		if (!prepared->end) {
			prepared->start = sight->start;
			prepared->end = sight->end;
			prepared->offset = sight->offset;
		}
	}
	entry->path = strdup(prepared ? prepared->path : sight->name);
	if (!entry->path)
		return -ENOMEM;
	images->by_id[sight->id] = take_ptr(entry);
	return 0;
}

const struct image_entry *images_lookup(const struct images *images, uint32_t id)
{
	return id < images->id_count ? images->by_id[id] : NULL;
}

const struct image_entry *images_main(const struct images *images)
{
	return images->prepared_count ? images->prepared[0] : NULL;
}
