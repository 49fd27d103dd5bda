/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/images.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "heaptap/unwind.h"
#include "proc/maps.h"

struct images {
	struct image_entry **by_id; /* index is the id */
	size_t id_count;
	struct image **files; /* owned; no two have the same build-id */
	size_t file_count;
	uint32_t main_id;
	pthread_mutex_t lock; /* for changes, and for readers in other threads */
	int (*identify)(void *arg, const int *fds, size_t count, uint32_t *ids);
	void *identify_arg;
	uint16_t attempts[UNWIND_MAX_IMAGES]; /* to find a sight's file, by id */
};

/* A file that is mapped and unmapped all the time is looked for so often. */
#define MAX_ATTEMPTS 1000

int images_new(int (*identify)(void *arg, const int *fds, size_t count, uint32_t *ids), void *arg,
	       struct images **ret)
{
	struct images *images = calloc(1, sizeof(*images));

	if (!images)
		return -ENOMEM;
	pthread_mutex_init(&images->lock, NULL);
	images->identify = identify;
	images->identify_arg = arg;
	*ret = images;
	return 0;
}

static void entry_free(struct image_entry *entry)
{
	if (!entry)
		return;
	entry_free(entry->nameless);
	free(entry->path);
	free(entry);
}

void images_free(struct images *images)
{
	if (!images)
		return;
	for (size_t i = 0; i < images->id_count; i++)
		entry_free(images->by_id[i]);
	for (size_t i = 0; i < images->file_count; i++)
		image_free(images->files[i]);
	free(images->by_id);
	free(images->files);
	pthread_mutex_destroy(&images->lock);
	free(images);
}

static int make_room(struct images *images, uint32_t id)
{
	size_t count = (size_t)id + 1;
	struct image_entry **by_id;

	if (count <= images->id_count)
		return 0;
	pthread_mutex_lock(&images->lock);
	by_id = reallocarray(images->by_id, count, sizeof(*by_id));
	if (by_id) {
		memset(by_id + images->id_count, 0, (count - images->id_count) * sizeof(*by_id));
		images->by_id = by_id;
		images->id_count = count;
	}
	pthread_mutex_unlock(&images->lock);
	return by_id ? 0 : -ENOMEM;
}

/*
 * Until a target's mapping is known, an image has an address of its own choosing: apart from all
 * others, so that addresses in a profile stay unambiguous.
 */
static void make_up_address(struct image_entry *entry, uint64_t size)
{
	entry->start = (uint64_t)entry->id << FRAME_OFFSET_BITS;
	entry->end = entry->start + (size ? size : 4096);
	entry->offset = 0;
	entry->located = false;
}

/* An entry that takes *path over. One that was there stays for those who have read its path. */
static int add_entry(struct images *images, uint32_t id, struct image *image, char **path,
		     uint64_t size)
{
	struct image_entry *entry;
	int err;

	if (!id || id > FRAME_IMAGE_MAX)
		return -EINVAL;
	err = make_room(images, id);
	if (err)
		return err;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->id = id;
	entry->image = image;
	entry->path = take_ptr(*path);
	make_up_address(entry, size);
	pthread_mutex_lock(&images->lock);
	entry->nameless = images->by_id[id];
	images->by_id[id] = entry;
	pthread_mutex_unlock(&images->lock);
	return 0;
}

/* Keeps the image, or frees it and returns the equal one that is kept already. */
static int keep_file(struct images *images, struct image *image, struct image **ret)
{
	struct image *owned CLEANUP(image) = image;
	const char *build_id = image_build_id(image);
	struct image **files;

	for (size_t i = 0; i < images->file_count; i++) {
		if (*build_id && !strcmp(image_build_id(images->files[i]), build_id)) {
			*ret = images->files[i];
			return 0;
		}
	}
	files = reallocarray(images->files, images->file_count + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	images->files = files;
	files[images->file_count++] = owned;
	*ret = take_ptr(owned);
	return 0;
}

int images_add_file(struct images *images, uint32_t id, struct image *image)
{
	const struct image_entry *known = images_lookup(images, id);
	struct image *owned CLEANUP(image) = image;
	_cleanup_free_ char *path = NULL;
	struct stat st = {};
	int err;

	if (known && known->image)
		return 0;
	path = strdup(image_path(image));
	if (!path)
		return -ENOMEM;
	fstat(image_fd(image), &st);
	err = keep_file(images, take_ptr(owned), &image);
	if (!err)
		err = add_entry(images, id, image, &path, st.st_size);
	if (!err && !images->main_id)
		images->main_id = id;
	return err;
}

/* Whether a path ends in the sight's name, which is cut if it is long. */
static bool has_name(const struct mapping *mapping, const struct image_sight *sight)
{
	const char *slash = strrchr(mapping->path, '/');

	return slash && !strncmp(slash + 1, sight->name, sizeof(sight->name) - 1);
}

/*
 * Whether the kernel side gives this id to the file of a mapping; opens it then. The name is looked
 * at too: between reading the mappings and opening the file another may have taken the address.
 */
static int open_if_same(struct images *images, const struct image_sight *sight,
			const struct mapping *mapping, struct image **ret)
{
	_cleanup_close_ int fd = -1;
	uint32_t id;
	int err;

	if (!mapping || !mapping->inode || !mapping->executable || !has_name(mapping, sight))
		return -EAGAIN;
	fd = maps_open_file(sight->tgid, mapping);
	if (fd < 0)
		return -EAGAIN;
	err = images->identify(images->identify_arg, &fd, 1, &id);
	if (err)
		return err;
	if (id != sight->id)
		return -EAGAIN;
	return image_open(take_fd(fd), mapping->path, ret);
}

/* Looks for the sight's file where it was seen, then in all mappings of the process. */
static int find_sight(struct images *images, const struct image_sight *sight,
		      const struct maps *maps, struct image **ret, const struct mapping **ret_at)
{
	int err;

	*ret_at = maps_find(maps, sight->start);
	err = open_if_same(images, sight, *ret_at, ret);
	for (size_t i = 0; i < maps->count && err == -EAGAIN; i++) {
		*ret_at = &maps->entries[i];
		err = open_if_same(images, sight, *ret_at, ret);
	}
	return err;
}

/* Whether another attempt may find the file. */
static bool may_try_again(struct images *images, uint32_t id)
{
	return id < UNWIND_MAX_IMAGES && images->attempts[id]++ < MAX_ATTEMPTS;
}

static void locate(struct images *images, struct image_entry *entry, uint64_t start, uint64_t end,
		   uint64_t offset)
{
	pthread_mutex_lock(&images->lock);
	entry->start = start;
	entry->end = end;
	entry->offset = offset;
	entry->located = true;
	pthread_mutex_unlock(&images->lock);
}

static int add_nameless(struct images *images, const struct image_sight *sight)
{
	_cleanup_free_ char *path = strndup(sight->name, sizeof(sight->name));
	int err;

	if (!path)
		return -ENOMEM;
	err = add_entry(images, sight->id, NULL, &path, sight->file_size);
	if (!err)
		locate(images, images->by_id[sight->id], sight->start, sight->end, sight->offset);
	return err;
}

int images_add_sight(struct images *images, const struct image_sight *sight)
{
	struct maps *maps CLEANUP(maps) = NULL;
	struct image *image CLEANUP(image) = NULL;
	const struct mapping *mapping = NULL;
	int err;

	if (images_lookup(images, sight->id))
		return 0;
	err = maps_read(sight->tgid, &maps);
	if (!err)
		err = find_sight(images, sight, maps, &image, &mapping);
	if (err == -ENOMEM)
		return err;
	if (err == -EAGAIN && may_try_again(images, sight->id))
		return err;
	if (!image)
		return add_nameless(images, sight);
	err = images_add_file(images, sight->id, take_ptr(image));
	if (err)
		return err;
	locate(images, images->by_id[sight->id], mapping->start, mapping->end, mapping->offset);
	return 0;
}

void images_locate(struct images *images, const struct maps *maps)
{
	for (size_t id = 0; id < images->id_count; id++) {
		struct image_entry *entry = images->by_id[id];

		for (size_t i = 0; entry && !entry->located && i < maps->count; i++) {
			const struct mapping *mapping = &maps->entries[i];

			if (!mapping->executable || strcmp(mapping->path, entry->path))
				continue;
			locate(images, entry, mapping->start, mapping->end, mapping->offset);
		}
	}
}

static bool is_mapped(const struct image_entry *entry, const struct maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		if (maps->entries[i].executable && !strcmp(maps->entries[i].path, entry->path))
			return true;
	}
	return false;
}

void images_find_gone(const struct images *images, const struct maps *maps,
		      void (*gone)(void *arg, uint32_t id), void *arg)
{
	for (size_t id = 0; id < images->id_count; id++) {
		const struct image_entry *entry = images->by_id[id];

		/* An entry without an image has only the last part of its path. */
		if (entry && entry->image && entry->located && !is_mapped(entry, maps))
			gone(arg, id);
	}
}

bool images_all_located(const struct images *images)
{
	for (size_t id = 0; id < images->id_count; id++) {
		if (images->by_id[id] && !images->by_id[id]->located)
			return false;
	}
	return true;
}

const struct image_entry *images_lookup(const struct images *images, uint32_t id)
{
	return id < images->id_count ? images->by_id[id] : NULL;
}

bool images_read(struct images *images, uint32_t id, struct image_entry *ret)
{
	const struct image_entry *entry;

	pthread_mutex_lock(&images->lock);
	entry = images_lookup(images, id);
	if (entry)
		*ret = *entry;
	pthread_mutex_unlock(&images->lock);
	return entry != NULL;
}

bool images_read_named(struct images *images, const char *path, struct image_entry *ret)
{
	const struct image_entry *found = NULL;

	pthread_mutex_lock(&images->lock);
	for (size_t id = images->id_count; id-- > 0 && !found;) {
		const struct image_entry *entry = images->by_id[id];

		if (entry && entry->image && !strcmp(entry->path, path))
			found = entry;
	}
	if (found)
		*ret = *found;
	pthread_mutex_unlock(&images->lock);
	return found != NULL;
}

bool images_read_main(struct images *images, struct image_entry *ret)
{
	return images->main_id && images_read(images, images->main_id, ret);
}
