/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "sights.h"

#include <errno.h>

#include "proc/maps.h"
#include "util/log.h"

/* Processes whose mappings are read at a time, to give images addresses. */
#define MAX_LOCATING 16

struct sights {
	struct sights_context context;
	size_t runtimes_told;
	bool changed; /* since the mappings were read */
};

int sights_new(const struct sights_context *context, struct sights **ret)
{
	struct sights *sights = calloc(1, sizeof(*sights));

	if (!sights)
		return -ENOMEM;
	sights->context = *context;
	*ret = sights;
	return 0;
}

void sights_free(struct sights *sights)
{
	free(sights);
}

void sights_note_change(struct sights *sights)
{
	sights->changed = true;
}

void sights_tell_runtimes(struct sights *sights)
{
	const struct runtimes *runtimes = sights->context.runtimes;

	if (!sights->context.tell_runtimes)
		return;
	for (; sights->runtimes_told < runtimes_count(runtimes); sights->runtimes_told++)
		log_info("%s", runtimes_describe(runtimes)[sights->runtimes_told]);
}

/*
 * A file that the programs have met: opened at first sight, and its unwind table built in the
 * background when it has none, or lacks the rows between call sites.
 */
static int add_image(void *arg, const struct image_sight *sight)
{
	struct sights *sights = arg;
	const struct sights_context *context = &sights->context;
	const struct image_entry *entry = images_lookup(context->images, sight->id);
	const __u32 wanted = UNWIND_WANT_ALL | UNWIND_WANTED;
	__u32 flags = kernel_image_flags(context->kernel, sight->id);
	int err = 0;

	if (!entry) {
		err = images_add_sight(context->images, sight);
		if (err == -EAGAIN) {
			kernel_ask_again(context->kernel, sight->id);
			return 0;
		}
		if (err)
			return err;
		entry = images_lookup(context->images, sight->id);
		sights->changed = true;
		if (entry->image)
			err = runtimes_note_image(context->runtimes, entry->image);
		if (err)
			return err;
	}
	if (entry->image && (flags & UNWIND_BUILT ? flags & UNWIND_WANT_ALL
						  : !context->lazy_tables || flags & wanted))
		err = tables_request(context->tables, sight->id, entry->image,
				     context->all_rows || flags & UNWIND_WANT_ALL);
	/* Without its table, stacks are cut there, and say so. */
	return err == -ENOMEM ? err : 0;
}

static void evict_image(void *arg, uint32_t id)
{
	struct sights *sights = arg;

	tables_evict(sights->context.tables, id);
}

/* By the mappings of processes that run, the last that came first. */
static void locate(struct sights *sights)
{
	struct images *images = sights->context.images;
	/* Only then is what it no longer maps gone. */
	bool single = processes_only_one(sights->context.processes);
	size_t count, read = 0;
	const struct snapshot_process *list = processes_list(sights->context.processes, &count);

	for (size_t i = count; i-- > 0 && read < MAX_LOCATING;) {
		struct maps *maps CLEANUP(maps) = NULL;

		if (!list[i].pid || maps_read(list[i].pid, &maps))
			continue;
		read++;
		images_locate(images, maps);
		if (single && sights->changed)
			images_find_gone(images, maps, evict_image, sights);
		if (images_all_located(images))
			break;
	}
	sights->changed = false;
}

int sights_update(struct sights *sights)
{
	int err = kernel_read_images(sights->context.kernel, add_image, sights);

	sights_tell_runtimes(sights);
	/* Only then can others be gone, or the files of a command get their addresses. */
	if (!err && (sights->changed || !images_all_located(sights->context.images)))
		locate(sights);
	return err;
}
