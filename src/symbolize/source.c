/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/source.h"

#include <errno.h>

#include "elf/minidebug.h"

struct source {
	struct image *image;
	bool has_dwarf; /* of its own, so that there is no separate debug file */
	bool debug_searched;
	struct image *debug; /* NULL: none */
	bool symbols_loaded;
	struct symtab *symtab;
	bool lines_opened;
	struct lines *lines;
	uint64_t lines_work;   /* left, when they were closed */
	size_t lines_given_up; /* at a bound of time or memory */
};

int source_new(struct image *image, struct source **ret)
{
	struct source *source = calloc(1, sizeof(*source));

	if (!source)
		return -ENOMEM;
	source->image = image;
	source->lines_work = UINT64_MAX;
	source->has_dwarf = debuginfo_has_dwarf(image);
	*ret = source;
	return 0;
}

void source_free(struct source *source)
{
	if (!source)
		return;
	lines_close(source->lines);
	symtab_free(source->symtab);
	image_free(source->debug);
	free(source);
}

static int find_debug_file(struct source *source, const struct source_context *context)
{
	int err;

	if (source->has_dwarf || source->debug_searched)
		return 0;
	source->debug_searched = true;
	err = debuginfo_find(context->debuginfo, source->image, context->root_fd, true,
			     &source->debug);
	return err == -ENOMEM ? err : 0;
}

static int load_symbols(struct source *source, const struct source_context *context)
{
	struct image *mini CLEANUP(image) = NULL;
	struct image *others[2];
	size_t count = 0;
	int err;

	if (source->symbols_loaded)
		return 0;
	err = find_debug_file(source, context);
	if (err)
		return err;
	if (source->debug)
		others[count++] = source->debug;
	/* The debug file's symbols are all there are. */
	else if (minidebug_open(source->image, &mini) == -ENOMEM)
		return -ENOMEM;
	if (mini)
		others[count++] = mini;
	err = symtab_load_names(source->image, others, count, &source->symtab);
	/* Broken or missing tables make frames nameless, no more. */
	if (err == -ENOMEM)
		return err;
	source->symbols_loaded = true;
	return 0;
}

int source_symbol(struct source *source, const struct source_context *context, uint64_t vaddr,
		  const struct symbol **ret)
{
	int err = load_symbols(source, context);

	if (!err)
		*ret = source->symtab ? symtab_lookup(source->symtab, vaddr) : NULL;
	return err;
}

static int open_lines(struct source *source, const struct source_context *context)
{
	int err;

	if (source->lines_opened || !context->use_lines)
		return 0;
	err = find_debug_file(source, context);
	if (err)
		return err;
	source->lines_opened = true;
	if (!source->has_dwarf && !source->debug)
		return 0;
	err = lines_open_at(source->has_dwarf ? source->image : source->debug, context->root_fd,
			    &source->lines);
	if (!err)
		lines_limit_work(source->lines, source->lines_work);
	return err == -ENOMEM ? err : 0;
}

int source_lines(struct source *source, const struct source_context *context, uint64_t vaddr,
		 const struct line_frame **ret, size_t *ret_count)
{
	int err = open_lines(source, context);

	*ret_count = 0;
	if (err || !source->lines)
		return err;
	err = lines_lookup(source->lines, vaddr, ret, ret_count);
	if (err)
		*ret_count = 0;
	if (err == -ENOMEM)
		return err;
	/* Names from the symbols remain. */
	source->lines_given_up += err != 0;
	return 0;
}

void source_forget(struct source *source)
{
	symtab_free(take_ptr(source->symtab));
	source->symbols_loaded = false;
	if (source->lines) {
		source->lines_work = lines_work_left(source->lines);
		lines_close(take_ptr(source->lines));
		source->lines_opened = false;
	}
}

size_t source_bytes(const struct source *source)
{
	return (source->symtab ? symtab_bytes(source->symtab) : 0) +
	       (source->lines ? lines_bytes(source->lines) : 0);
}

bool source_has_debug_file(const struct source *source)
{
	return source->debug;
}

bool source_has_lines(const struct source *source)
{
	return source->lines;
}
