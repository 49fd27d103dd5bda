/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames to names: file offset -> virtual address -> functions by DWARF, else the symbol -> names
 * for people.
 *
 * What a frame is told is kept: its lines, and every string once. So the tables behind can be
 * dropped at any time, and are, the least recently used first, when together they grow too large.
 */
#include "symbolize/symbolizer.h"

#include <errno.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "symbolize/demangle.h"
#include "symbolize/raw_code.h"
#include "symbolize/source.h"
#include "util/clock.h"

/* Of the symbols and DWARF of all files together, but for the one in use. */
#define TABLES_MAX_BYTES (24ull << 20)
/* Longer names are cut. */
#define STRING_MAX_SIZE 65536u
/* Where DWARF describes a function without naming it. */
#define UNKNOWN_NAME "??"

struct known_image {
	struct image *image;
	struct source *source;
	uint64_t last_use;
	size_t bytes; /* of its tables */
	UT_hash_handle hh;
};

struct known_process {
	pid_t pid;
	struct raw_code *code;
	UT_hash_handle hh;
};

/* A string of the files, and the name that people read for it. */
struct known_string {
	char *text;
	char *name; /* NULL until asked for */
	UT_hash_handle hh;
};

struct frame_key {
	struct image *image; /* NULL: a raw address of a process */
	uint64_t offset;
	uint64_t pid;
};

struct known_frame {
	struct frame_key key;
	const struct raw_mapping *mapping;
	UT_hash_handle hh;
	size_t line_count;
	struct symbolized_line lines[];
};

struct symbolizer {
	struct source_context context;
	struct known_image *images;
	struct known_process *processes;
	struct known_string *strings;
	struct known_frame *frames;
	uint64_t uses;
	struct symbolizer_stats stats;
};

int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret)
{
	struct symbolizer *symbolizer CLEANUP(symbolizer) = calloc(1, sizeof(*symbolizer));
	int err;

	if (!symbolizer)
		return -ENOMEM;
	symbolizer->context.root_fd = -1;
	symbolizer->context.use_lines = options->lines;
	err = debuginfo_new(options->debug_dirs, options->debug_dir_count,
			    &symbolizer->context.debuginfo);
	if (err)
		return err;
	*ret = take_ptr(symbolizer);
	return 0;
}

void symbolizer_free(struct symbolizer *symbolizer)
{
	struct known_image *image, *next_image;
	struct known_process *process, *next_process;
	struct known_string *string, *next_string;
	struct known_frame *frame, *next_frame;

	if (!symbolizer)
		return;
	HASH_ITER (hh, symbolizer->frames, frame, next_frame) {
		HASH_DEL(symbolizer->frames, frame);
		free(frame);
	}
	HASH_ITER (hh, symbolizer->strings, string, next_string) {
		HASH_DEL(symbolizer->strings, string);
		free(string->name);
		free(string->text);
		free(string);
	}
	HASH_ITER (hh, symbolizer->images, image, next_image) {
		HASH_DEL(symbolizer->images, image);
		source_free(image->source);
		free(image);
	}
	HASH_ITER (hh, symbolizer->processes, process, next_process) {
		HASH_DEL(symbolizer->processes, process);
		raw_code_free(process->code);
		free(process);
	}
	debuginfo_free(symbolizer->context.debuginfo);
	free(symbolizer);
}

static int find_image(struct symbolizer *symbolizer, struct image *image, struct known_image **ret)
{
	struct source *source CLEANUP(source) = NULL;
	struct known_image *known;
	int err;

	HASH_FIND_PTR(symbolizer->images, &image, known);
	if (!known) {
		err = source_new(image, &source);
		if (err)
			return err;
		known = calloc(1, sizeof(*known));
		if (!known)
			return -ENOMEM;
		known->image = image;
		HASH_ADD_PTR(symbolizer->images, image, known);
		if (!known->hh.tbl) {
			free(known);
			return -ENOMEM;
		}
		known->source = take_ptr(source);
	}
	known->last_use = ++symbolizer->uses;
	*ret = known;
	return 0;
}

static int find_process(struct symbolizer *symbolizer, pid_t pid, struct known_process **ret)
{
	struct raw_code *code CLEANUP(raw_code) = NULL;
	struct known_process *known;
	int err;

	HASH_FIND(hh, symbolizer->processes, &pid, sizeof(pid), known);
	if (!known) {
		err = raw_code_new(pid, &code);
		if (!err)
			err = raw_code_refresh(code);
		if (err)
			return err;
		known = calloc(1, sizeof(*known));
		if (!known)
			return -ENOMEM;
		known->pid = pid;
		HASH_ADD(hh, symbolizer->processes, pid, sizeof(pid), known);
		if (!known->hh.tbl) {
			free(known);
			return -ENOMEM;
		}
		known->code = take_ptr(code);
	}
	*ret = known;
	return 0;
}

int symbolizer_refresh(struct symbolizer *symbolizer, pid_t pid)
{
	struct known_process *process;
	int err = find_process(symbolizer, pid, &process);

	if (!err)
		err = raw_code_refresh(process->code);
	/* One that has ended takes away nobody's place. */
	if (!err && raw_code_root(process->code) >= 0)
		symbolizer->context.root_fd = raw_code_root(process->code);
	return err;
}

/* The copy of a string that is kept. */
static int keep_string(struct symbolizer *symbolizer, const char *text, struct known_string **ret)
{
	size_t length = strnlen(text, STRING_MAX_SIZE);
	struct known_string *known;

	HASH_FIND(hh, symbolizer->strings, text, length, known);
	if (!known) {
		known = calloc(1, sizeof(*known));
		if (!known)
			return -ENOMEM;
		known->text = strndup(text, length);
		if (known->text)
			HASH_ADD_KEYPTR(hh, symbolizer->strings, known->text, length, known);
		if (!known->hh.tbl) {
			free(known->text);
			free(known);
			return -ENOMEM;
		}
	}
	*ret = known;
	return 0;
}

/* Fills in a line's names from the raw one. */
static int set_name(struct symbolizer *symbolizer, struct symbolized_line *line, const char *raw)
{
	struct known_string *known;
	int err = keep_string(symbolizer, raw, &known);

	if (err)
		return err;
	if (!known->name)
		known->name = demangle_function(known->text);
	line->name = known->name;
	line->system_name = known->text;
	return known->name ? 0 : -ENOMEM;
}

static int set_filename(struct symbolizer *symbolizer, struct symbolized_line *line,
			const char *filename)
{
	struct known_string *known;
	int err = filename ? keep_string(symbolizer, filename, &known) : 0;

	if (!err && filename)
		line->filename = known->text;
	return err;
}

static void forget_tables(struct symbolizer *symbolizer, struct known_image *image)
{
	source_forget(image->source);
	symbolizer->stats.table_bytes -= image->bytes;
	symbolizer->stats.forgotten++;
	image->bytes = 0;
}

/* Drops the tables that were not used for longest, until the others are small enough. */
static void limit_memory(struct symbolizer *symbolizer, const struct known_image *current)
{
	while (symbolizer->stats.table_bytes > TABLES_MAX_BYTES) {
		struct known_image *image, *next, *oldest = NULL;

		HASH_ITER (hh, symbolizer->images, image, next) {
			if (image->bytes && image != current &&
			    (!oldest || image->last_use < oldest->last_use))
				oldest = image;
		}
		if (!oldest)
			return;
		forget_tables(symbolizer, oldest);
	}
}

/* The tables of an image have been used, and may have grown. */
static void account(struct symbolizer *symbolizer, struct known_image *image)
{
	size_t bytes = source_bytes(image->source);

	if (bytes == image->bytes)
		return;
	symbolizer->stats.table_bytes += bytes - image->bytes;
	image->bytes = bytes;
	limit_memory(symbolizer, image);
}

void symbolizer_trim(struct symbolizer *symbolizer, bool (*wanted)(void *arg, pid_t pid), void *arg)
{
	struct known_process *process, *next_process;
	struct known_frame *frame, *next_frame;

	limit_memory(symbolizer, NULL);
	HASH_ITER (hh, symbolizer->processes, process, next_process) {
		if (wanted(arg, process->pid))
			continue;
		/* They refer to its mappings. */
		HASH_ITER (hh, symbolizer->frames, frame, next_frame) {
			if (frame->key.image || frame->key.pid != (uint64_t)process->pid)
				continue;
			HASH_DEL(symbolizer->frames, frame);
			free(frame);
		}
		HASH_DEL(symbolizer->processes, process);
		if (raw_code_root(process->code) == symbolizer->context.root_fd)
			symbolizer->context.root_fd = -1;
		raw_code_free(process->code);
		free(process);
	}
}

static int symbol_name(struct symbolizer *symbolizer, struct known_image *image, uint64_t vaddr,
		       const char **ret)
{
	const struct symbol *symbol;
	int err = source_symbol(image->source, &symbolizer->context, vaddr, &symbol);

	if (err)
		return err;
	*ret = symbol ? symbol->name : NULL;
	return 0;
}

static int frame_new(size_t line_count, struct known_frame **ret)
{
	struct known_frame *frame =
		calloc(1, sizeof(*frame) + line_count * sizeof(frame->lines[0]));

	if (!frame)
		return -ENOMEM;
	frame->line_count = line_count;
	*ret = frame;
	return 0;
}

static int fill_line(struct symbolizer *symbolizer, const struct line_frame *from, const char *name,
		     struct symbolized_line *line)
{
	int err = set_name(symbolizer, line, name ? name : UNKNOWN_NAME);

	line->line = from->line;
	line->start_line = from->start_line;
	return err ? err : set_filename(symbolizer, line, from->filename);
}

static int symbolize(struct symbolizer *symbolizer, struct image *image, uint64_t offset,
		     struct known_frame **ret)
{
	_cleanup_free_ struct known_frame *frame = NULL;
	const struct line_frame *lines = NULL;
	struct known_image *known;
	const char *name = NULL;
	size_t count = 0;
	uint64_t vaddr;
	int err;

	if (image_offset_to_vaddr(image, offset, &vaddr))
		return frame_new(0, ret);
	err = find_image(symbolizer, image, &known);
	if (!err)
		err = source_lines(known->source, &symbolizer->context, vaddr, &lines, &count);
	/* The outermost function is a symbol's, whatever DWARF leaves out. */
	if (!err && (!count || !lines[count - 1].name))
		err = symbol_name(symbolizer, known, vaddr, &name);
	if (!err)
		err = frame_new(count ? count : name != NULL, &frame);
	for (size_t i = 0; i < count && !err; i++)
		err = fill_line(symbolizer, &lines[i],
				i + 1 == count && name ? name : lines[i].name, &frame->lines[i]);
	if (!err && !count && name)
		err = set_name(symbolizer, &frame->lines[0], name);
	if (err)
		return err;
	account(symbolizer, known);
	symbolizer->stats.with_lines += count && lines[count - 1].line;
	*ret = take_ptr(frame);
	return 0;
}

static int symbolize_raw(struct symbolizer *symbolizer, pid_t pid, uint64_t address,
			 struct known_frame **ret)
{
	_cleanup_free_ struct known_frame *frame = NULL;
	struct known_process *process;
	struct raw_name name = {};
	int err;

	err = find_process(symbolizer, pid, &process);
	if (!err)
		err = raw_code_lookup(process->code, address, &name);
	if (!err)
		err = frame_new(name.name != NULL, &frame);
	if (!err && name.name)
		err = set_name(symbolizer, &frame->lines[0], name.name);
	if (err)
		return err;
	frame->mapping = name.mapping;
	*ret = take_ptr(frame);
	return 0;
}

/* Keeps the frame, or frees it. */
static int keep_frame(struct symbolizer *symbolizer, const struct frame_key *key,
		      struct known_frame *frame)
{
	frame->key = *key;
	HASH_ADD(hh, symbolizer->frames, key, sizeof(frame->key), frame);
	if (!frame->hh.tbl) {
		free(frame);
		return -ENOMEM;
	}
	symbolizer->stats.frames++;
	symbolizer->stats.named += frame->line_count != 0;
	return 0;
}

static void fill_result(const struct known_frame *frame, struct symbolized_frame *ret)
{
	*ret = (struct symbolized_frame){frame->lines, frame->line_count, frame->mapping};
}

int symbolizer_lookup(struct symbolizer *symbolizer, struct image *image, uint64_t offset,
		      struct symbolized_frame *ret)
{
	struct frame_key key = {.image = image, .offset = offset};
	struct known_frame *frame;
	uint64_t start_ns;
	int err = 0;

	HASH_FIND(hh, symbolizer->frames, &key, sizeof(key), frame);
	if (!frame) {
		start_ns = clock_ns(CLOCK_MONOTONIC);
		err = symbolize(symbolizer, image, offset, &frame);
		if (!err)
			err = keep_frame(symbolizer, &key, frame);
		symbolizer->stats.time_ns += clock_ns(CLOCK_MONOTONIC) - start_ns;
	}
	if (!err)
		fill_result(frame, ret);
	return err;
}

int symbolizer_lookup_raw(struct symbolizer *symbolizer, pid_t pid, uint64_t address,
			  struct symbolized_frame *ret)
{
	struct frame_key key = {.offset = address, .pid = pid};
	struct known_frame *frame;
	int err = 0;

	HASH_FIND(hh, symbolizer->frames, &key, sizeof(key), frame);
	/* The compiler may not have written its name yet. */
	if (frame && !frame->line_count) {
		HASH_DEL(symbolizer->frames, frame);
		symbolizer->stats.frames--;
		free(take_ptr(frame));
	}
	if (!frame) {
		err = symbolize_raw(symbolizer, pid, address, &frame);
		if (!err)
			err = keep_frame(symbolizer, &key, frame);
	}
	if (!err)
		fill_result(frame, ret);
	return err;
}

void symbolizer_read_stats(const struct symbolizer *symbolizer, struct symbolizer_stats *ret)
{
	struct known_image *image, *next_image;
	struct known_process *process, *next_process;

	*ret = symbolizer->stats;
	debuginfo_read_stats(symbolizer->context.debuginfo, &ret->debuginfo);
	HASH_ITER (hh, symbolizer->images, image, next_image) {
		ret->images++;
		ret->debug_files += source_has_debug_file(image->source);
	}
	HASH_ITER (hh, symbolizer->processes, process, next_process)
		ret->malformed_jit_lines += raw_code_malformed(process->code);
}
