/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include "unwind/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <uthash.h>

#include "elf/symtab.h"
#include "unwind/rows.h"
#include "util/clock.h"

/* A build-id of more digits is cut; GNU ld writes 40. */
#define BUILD_ID_SIZE 72

/* A table that images with the same build-id share. */
struct known_table {
	struct {
		char build_id[BUILD_ID_SIZE];
		uint32_t all;
	} key;
	int fd; /* -1: the image has no rows */
	uint32_t flags;
	uint32_t users; /* images that it is published for */
	UT_hash_handle hh;
};

struct request {
	struct request *next;
	struct image *image;
	uint32_t id;
	bool all;
};

struct tables {
	struct upload *upload;
	struct known_table *known;
	struct known_table *published[UNWIND_MAX_IMAGES]; /* by image id */
	struct tables_stats stats;
	pthread_mutex_t build; /* one build at a time; guards the above */
	pthread_mutex_t queue; /* guards the below */
	pthread_cond_t changed;
	struct request *first, **last;
	uint8_t requested[UNWIND_MAX_IMAGES]; /* by id: 1 a table, 2 one with all rows */
	pthread_t worker;
	bool started;
	bool stopping;
};

static void request_free(struct request *request)
{
	if (!request)
		return;
	image_free(request->image);
	free(request);
}

int tables_new(const struct upload_maps *maps, struct tables **ret)
{
	struct tables *tables = calloc(1, sizeof(*tables));
	int err;

	if (!tables)
		return -ENOMEM;
	err = upload_new(maps, &tables->upload);
	if (err) {
		free(tables);
		return err;
	}
	pthread_mutex_init(&tables->build, NULL);
	pthread_mutex_init(&tables->queue, NULL);
	pthread_cond_init(&tables->changed, NULL);
	tables->last = &tables->first;
	*ret = tables;
	return 0;
}

void tables_free(struct tables *tables)
{
	struct known_table *table, *next;

	if (!tables)
		return;
	if (tables->started) {
		pthread_mutex_lock(&tables->queue);
		tables->stopping = true;
		pthread_cond_signal(&tables->changed);
		pthread_mutex_unlock(&tables->queue);
		pthread_join(tables->worker, NULL);
	}
	while (tables->first) {
		struct request *request = tables->first;

		tables->first = request->next;
		request_free(request);
	}
	HASH_ITER (hh, tables->known, table, next) {
		HASH_DEL(tables->known, table);
		if (table->fd >= 0)
			close(table->fd);
		free(table);
	}
	pthread_mutex_destroy(&tables->build);
	pthread_mutex_destroy(&tables->queue);
	pthread_cond_destroy(&tables->changed);
	upload_free(tables->upload);
	free(tables);
}

/*
 * Whether signal handlers typically interrupt this image between its call sites: the C library,
 * in or outside the program, where raise() and blocking system calls are.
 */
static bool is_interruptible(const struct symtab *symtab)
{
	return symtab && symtab_find(symtab, "__libc_start_main");
}

/* Builds an image's table. Fills *table, whose fd is -1 if there are no rows. */
static int build_table(struct tables *tables, struct image *image, bool all,
		       struct known_table *table)
{
	struct unwind_rows *rows CLEANUP(unwind_rows) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int err;

	err = symtab_load(image, &symtab);
	if (err == -ENOMEM)
		return err;
	all = all || is_interruptible(symtab);
	table->fd = -1;
	table->flags = all ? UNWIND_ALL_ROWS : 0;
	err = unwind_rows_build(image, symtab, all, &rows);
	if (err == -ENOENT) {
		tables->stats.rowless++;
		return 0;
	}
	if (err)
		return err;
	table->fd = upload_table(tables->upload, rows);
	if (table->fd < 0)
		return table->fd;
	tables->stats.images++;
	tables->stats.rows += rows->count;
	tables->stats.dropped_fdes += rows->dropped_fdes;
	tables->stats.build_ns += clock_ns(CLOCK_MONOTONIC) - start_ns;
	return 0;
}

/* The table of an image: an equal image's, or a new one, kept for the next. */
static int find_table(struct tables *tables, struct image *image, bool all,
		      struct known_table **ret)
{
	_cleanup_free_ struct known_table *table = calloc(1, sizeof(*table));
	struct known_table *known = NULL;
	int err;

	if (!table)
		return -ENOMEM;
	snprintf(table->key.build_id, sizeof(table->key.build_id), "%s", image_build_id(image));
	/* Without a build-id nothing is known to be equal: the key is unique by its address. */
	if (!table->key.build_id[0])
		snprintf(table->key.build_id, sizeof(table->key.build_id), "%p", (void *)table);
	table->key.all = all;
	HASH_FIND(hh, tables->known, &table->key, sizeof(table->key), known);
	if (known) {
		tables->stats.shared++;
		*ret = known;
		return 0;
	}
	err = build_table(tables, image, all, table);
	if (err)
		return err;
	HASH_ADD(hh, tables->known, key, sizeof(table->key), table);
	if (!table->hh.tbl) {
		if (table->fd >= 0)
			close(table->fd);
		return -ENOMEM;
	}
	*ret = take_ptr(table);
	return 0;
}

/* An image no longer uses its table; the last user's is given up. */
static void unpublish(struct tables *tables, uint32_t id)
{
	struct known_table *table = tables->published[id];

	tables->published[id] = NULL;
	if (!table || --table->users)
		return;
	HASH_DEL(tables->known, table);
	if (table->fd >= 0)
		close(table->fd);
	free(table);
}

static int publish(struct tables *tables, uint32_t id, struct image *image, bool all)
{
	struct known_table *table;
	int err;

	err = find_table(tables, image, all, &table);
	if (err)
		return err;
	table->users++;
	unpublish(tables, id);
	tables->published[id] = table;
	return upload_publish(tables->upload, id, table->fd, table->flags);
}

static int build(struct tables *tables, uint32_t id, struct image *image, bool all)
{
	int err;

	if (id >= UNWIND_MAX_IMAGES)
		return -EINVAL;
	pthread_mutex_lock(&tables->build);
	err = publish(tables, id, image, all);
	if (err) {
		tables->stats.failed++;
		/* Nothing more will come: its code has no rows. */
		upload_publish(tables->upload, id, -1, 0);
	}
	pthread_mutex_unlock(&tables->build);
	return err;
}

int tables_build(struct tables *tables, uint32_t id, struct image *image, bool all)
{
	return build(tables, id, image, all);
}

static void *work(void *arg)
{
	struct tables *tables = arg;
	struct request *request;

	pthread_mutex_lock(&tables->queue);
	while (!tables->stopping) {
		request = tables->first;
		if (!request) {
			pthread_cond_wait(&tables->changed, &tables->queue);
			continue;
		}
		tables->first = request->next;
		if (!tables->first)
			tables->last = &tables->first;
		pthread_mutex_unlock(&tables->queue);
		/* A failure is in the statistics; stacks say that rows are missing. */
		build(tables, request->id, request->image, request->all);
		request_free(request);
		pthread_mutex_lock(&tables->queue);
	}
	pthread_mutex_unlock(&tables->queue);
	return NULL;
}

int tables_request(struct tables *tables, uint32_t id, struct image *image, bool all)
{
	struct request *request;
	uint8_t wanted = all ? 2 : 1;
	int fd, err;

	if (id >= UNWIND_MAX_IMAGES || tables->requested[id] >= wanted)
		return 0;
	request = calloc(1, sizeof(*request));
	if (!request)
		return -ENOMEM;
	/* libelf handles are not shared between threads. */
	fd = fcntl(image_fd(image), F_DUPFD_CLOEXEC, 0);
	err = fd < 0 ? -errno : image_open(fd, image_path(image), &request->image);
	if (err) {
		request_free(request);
		return err;
	}
	request->id = id;
	request->all = all;
	pthread_mutex_lock(&tables->queue);
	if (!tables->started) {
		err = -pthread_create(&tables->worker, NULL, work, tables);
		tables->started = !err;
		if (!err)
			pthread_setname_np(tables->worker, "tables");
	}
	if (!err) {
		*tables->last = request;
		tables->last = &request->next;
		pthread_cond_signal(&tables->changed);
	}
	pthread_mutex_unlock(&tables->queue);
	if (err)
		request_free(request);
	else
		tables->requested[id] = wanted;
	return err;
}

void tables_evict(struct tables *tables, uint32_t id)
{
	if (id >= UNWIND_MAX_IMAGES)
		return;
	pthread_mutex_lock(&tables->build);
	if (tables->published[id]) {
		upload_withdraw(tables->upload, id);
		unpublish(tables, id);
		tables->stats.evicted++;
	}
	pthread_mutex_unlock(&tables->build);
	tables->requested[id] = 0;
}

void tables_read_stats(struct tables *tables, struct tables_stats *ret)
{
	pthread_mutex_lock(&tables->build);
	*ret = tables->stats;
	pthread_mutex_unlock(&tables->build);
}
