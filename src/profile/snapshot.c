/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "profile/accounts.h"
#include "profile/comments.h"
#include "profile/frame_table.h"
#include "profile/snapshot.h"
#include "symbolize/raw_code.h"

/*
 * Frames that only pass an allocation on. pprof removes a match and everything below it, so the
 * function that wanted the memory gets it as its own.
 */
#define C_FUNCTIONS                                                                                \
	"malloc|calloc|realloc|reallocarray|reallocf|memalign|aligned_alloc|posix_memalign|"       \
	"valloc|pvalloc|mallocx|rallocx|xallocx"
/* What jemalloc's functions end in a jump to. */
#define JEMALLOC_FUNCTIONS                                                                         \
	"((_rjem_)?je_)?malloc_default|do_rallocx|(void\\* )?fallback_impl(<[a-z]*>)?"
#define DROP_FRAMES                                                                                \
	"(operator new( ?\\[\\])?|"                                                                \
	"(__|__libc_|je_|_rjem_|tc_|mi_|rp|sn_|scudo_%s%s)?(" C_FUNCTIONS ")|" JEMALLOC_FUNCTIONS  \
	"|tc_(new|malloc)[a-z_]*|tcmalloc::allocate_full_[a-z_]*|mi_[a-z_]*(alloc|memalign|new)"   \
	"[a-z_]*|"                                                                                 \
	"__gnu_cxx::new_allocator<.*>::allocate|"                                                  \
	"std::(__new_allocator|allocator|allocator_traits)<.*>::allocate)"

/* A mapping that no file backs. */
struct known_mapping {
	const struct raw_mapping *raw;
	uint32_t mapping;
	UT_hash_handle hh;
};

/* A made-up frame, such as "[cut: ...]". */
struct known_note {
	char *text;
	uint32_t location;
	UT_hash_handle hh;
};

struct builder {
	const struct snapshot_input *input;
	struct profile *profile;
	struct frame_table frames; /* each is named and added once */
	struct known_note *notes;
	struct known_mapping *raw_mappings;
	uint32_t *mappings; /* by image id */
	size_t mapping_count;
	struct image_entry main_entry; /* id 0: none */
};

static void builder_fini(struct builder *builder)
{
	struct known_note *note, *next_note;
	struct known_mapping *mapping, *next_mapping;

	frame_table_fini(&builder->frames);
	HASH_ITER (hh, builder->notes, note, next_note) {
		HASH_DEL(builder->notes, note);
		free(note->text);
		free(note);
	}
	HASH_ITER (hh, builder->raw_mappings, mapping, next_mapping) {
		HASH_DEL(builder->raw_mappings, mapping);
		free(mapping);
	}
	free(builder->mappings);
	profile_free(builder->profile);
}

static uint32_t add_mapping(struct builder *builder, const struct image_entry *entry)
{
	struct profile_mapping mapping = {
		.start = entry->start,
		.limit = entry->end,
		.offset = entry->offset,
		.filename = profile_string(builder->profile, entry->path),
		.build_id = profile_string(builder->profile,
					   entry->image ? image_build_id(entry->image) : ""),
	};

	return profile_add_mapping(builder->profile, &mapping);
}

/* The mapping of an image; 0 if memory ran out. */
static uint32_t mapping_of(struct builder *builder, const struct image_entry *entry)
{
	if (entry->id >= builder->mapping_count) {
		size_t count = (size_t)entry->id + 16;
		uint32_t *mappings = reallocarray(builder->mappings, count, sizeof(*mappings));

		if (!mappings)
			return 0;
		memset(mappings + builder->mapping_count, 0,
		       (count - builder->mapping_count) * sizeof(*mappings));
		builder->mappings = mappings;
		builder->mapping_count = count;
	}
	if (!builder->mappings[entry->id]) {
		/* Mapping 0 of the file, which is the id 1, is the program and is there already. */
		if (builder->main_entry.id && entry->image &&
		    entry->image == builder->main_entry.image)
			builder->mappings[entry->id] = 1;
		else
			builder->mappings[entry->id] = add_mapping(builder, entry);
	}
	return builder->mappings[entry->id];
}

/* The mapping of code without a file: 0 for *raw NULL, which is in none that we know. */
static int raw_mapping_of(struct builder *builder, const struct raw_mapping *raw, uint32_t *ret)
{
	struct known_mapping *known;
	struct profile_mapping mapping;

	*ret = 0;
	if (!raw)
		return 0;
	HASH_FIND_PTR(builder->raw_mappings, &raw, known);
	if (!known) {
		known = calloc(1, sizeof(*known));
		if (!known)
			return -ENOMEM;
		mapping = (struct profile_mapping){
			.start = raw->start,
			.limit = raw->end,
			.filename = profile_string(builder->profile, raw->name),
			.build_id = profile_string(builder->profile, raw->build_id),
		};
		known->raw = raw;
		known->mapping = profile_add_mapping(builder->profile, &mapping);
		HASH_ADD_PTR(builder->raw_mappings, raw, known);
		if (!known->hh.tbl) {
			free(known);
			return -ENOMEM;
		}
	}
	*ret = known->mapping;
	return 0;
}

static uint32_t add_function(struct builder *builder, const char *name, const char *system_name,
			     const char *filename, long start_line)
{
	struct profile_function function = {
		.name = profile_string(builder->profile, name),
		.system_name = profile_string(builder->profile, system_name),
		.filename = profile_string(builder->profile, filename),
		.start_line = start_line,
	};

	return profile_add_function(builder->profile, &function);
}

/* A location with its names. */
static int named_location(struct builder *builder, uint32_t mapping, uint64_t address,
			  const struct symbolized_frame *names, uint32_t *ret)
{
	struct profile_mapping *flags = mapping ? &builder->profile->mappings[mapping - 1] : NULL;
	_cleanup_free_ struct profile_line *lines = calloc(names->line_count + 1, sizeof(*lines));
	bool filenames = false, numbers = false;

	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < names->line_count; i++) {
		const struct symbolized_line *line = &names->lines[i];

		lines[i].function = add_function(builder, line->name, line->system_name,
						 line->filename, line->start_line);
		lines[i].line = line->line;
		filenames |= line->filename != NULL;
		numbers |= line->line != 0;
	}
	if (flags && names->line_count) {
		flags->has_functions = true;
		flags->has_filenames |= filenames;
		flags->has_line_numbers |= numbers;
		flags->has_inline_frames |= names->line_count > 1;
	}
	*ret = profile_add_location(builder->profile, mapping, address, lines, names->line_count);
	return 0;
}

/* A location for code in an image. */
static int image_location(struct builder *builder, const struct image_entry *entry, uint64_t offset,
			  uint32_t *ret)
{
	uint32_t mapping = mapping_of(builder, entry);
	struct symbolized_frame names = {};
	const struct profile_mapping *at;
	int err;

	if (!mapping)
		return -ENOMEM;
	if (entry->image) {
		err = symbolizer_lookup(builder->input->symbolizer, entry->image, offset, &names);
		if (err)
			return err;
	}
	/* Not by the entry: its address may have become known only after the mapping was added. */
	at = &builder->profile->mappings[mapping - 1];
	return named_location(builder, mapping, at->start + offset - at->offset, &names, ret);
}

const struct snapshot_process *snapshot_find_process(const struct snapshot_input *input,
						     uint32_t serial)
{
	size_t low = 0, high = input->process_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (input->processes[middle].serial == serial)
			return &input->processes[middle];
		if (input->processes[middle].serial < serial)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static void add_label(struct builder *builder, struct profile_label *labels, size_t *count,
		      const char *key, const char *value)
{
	labels[(*count)++] = (struct profile_label){
		.key = profile_string(builder->profile, key),
		.string = profile_string(builder->profile, value),
	};
}

/* pid, comm, nspid, container, cgroup. */
#define PROCESS_LABELS 5

/* Returns how many there are. */
static size_t process_labels(struct builder *builder, uint32_t serial,
			     struct profile_label labels[PROCESS_LABELS])
{
	const struct snapshot_process *process = snapshot_find_process(builder->input, serial);
	char number[16];
	size_t count = 0;

	if (!process)
		return 0;
	if (process->pid) {
		snprintf(number, sizeof(number), "%d", process->pid);
		add_label(builder, labels, &count, "pid", number);
	}
	add_label(builder, labels, &count, "comm", *process->comm ? process->comm : "(unnamed)");
	if (process->inner_pid) {
		snprintf(number, sizeof(number), "%d", process->inner_pid);
		add_label(builder, labels, &count, "nspid", number);
	}
	if (*process->container)
		add_label(builder, labels, &count, "container", process->container);
	if (*process->cgroup)
		add_label(builder, labels, &count, "cgroup", process->cgroup);
	return count;
}

/* A location for code that no file backs. */
static int raw_location(struct builder *builder, uint64_t address, uint32_t serial, uint32_t *ret)
{
	const struct snapshot_process *process = snapshot_find_process(builder->input, serial);
	struct symbolized_frame names = {};
	uint32_t mapping;
	int err = 0;

	if (process)
		err = symbolizer_lookup_raw(builder->input->symbolizer, process->pid, address,
					    &names);
	if (!err)
		err = raw_mapping_of(builder, names.mapping, &mapping);
	return err ? err : named_location(builder, mapping, address, &names, ret);
}

static int locate_frame(struct builder *builder, struct known_frame *known)
{
	uint64_t frame = known->key.frame;
	struct image_entry entry;

	if (known->location)
		return 0;
	if (frame & FRAME_RAW)
		return raw_location(builder, frame & ~FRAME_RAW, known->key.serial,
				    &known->location);
	if (images_read(builder->input->images, frame >> FRAME_OFFSET_BITS, &entry))
		return image_location(builder, &entry, frame & FRAME_OFFSET_MASK, &known->location);
	known->location = profile_add_location(builder->profile, 0, frame, NULL, 0);
	return 0;
}

/* File by file, so that the tables of each are read once, however few of them are kept. */
static int locate_frames(struct builder *builder)
{
	const struct heap_site *site = heap_sites(builder->input->heap);
	struct known_frame *known;
	int err = 0;

	for (; site; site = site->hh.next)
		for (size_t i = 0; i < site->stack->count; i++)
			if (!frame_table_get(&builder->frames, site->stack->frames[i],
					     site->key.serial))
				return -ENOMEM;
	frame_table_sort(&builder->frames);
	for (known = builder->frames.frames; known && !err; known = known->hh.next)
		err = locate_frame(builder, known);
	return err;
}

static int frame_location(struct builder *builder, uint64_t frame, uint32_t serial, uint32_t *ret)
{
	struct known_frame *known = frame_table_get(&builder->frames, frame, serial);
	int err = known ? locate_frame(builder, known) : -ENOMEM;

	if (!err)
		*ret = known->location;
	return err;
}

/* A frame that says something instead of naming code. */
static int note_location(struct builder *builder, const char *text, uint32_t *ret)
{
	struct profile_line line = {};
	struct known_note *note;

	HASH_FIND_STR(builder->notes, text, note);
	if (!note) {
		note = calloc(1, sizeof(*note));
		if (!note)
			return -ENOMEM;
		note->text = strdup(text);
		if (!note->text) {
			free(note);
			return -ENOMEM;
		}
		line.function = add_function(builder, text, text, NULL, 0);
		note->location = profile_add_location(builder->profile, 0, 0, &line, 1);
		HASH_ADD_KEYPTR(hh, builder->notes, note->text, strlen(note->text), note);
		if (!note->hh.tbl) {
			free(note->text);
			free(note);
			return -ENOMEM;
		}
	}
	*ret = note->location;
	return 0;
}

/* The name of the image that holds a stack's last frame. */
static const char *last_image(const struct builder *builder, const struct heap_stack *stack)
{
	uint64_t frame = stack->frames[stack->count - 1];
	struct image_entry entry;
	const char *slash;

	if (frame & FRAME_RAW)
		return "code without a file";
	if (!images_read(builder->input->images, frame >> FRAME_OFFSET_BITS, &entry))
		return "an unknown file";
	slash = strrchr(entry.path, '/');
	return slash ? slash + 1 : entry.path;
}

static const char *const stop_texts[] = {
#define X(id, text) [STOP_##id] = text,
	STACK_STOPS(X)
#undef X
};

/* "[cut: REASON]", the root frame of a stack that was not walked to its end. */
static int cut_location(struct builder *builder, const struct heap_stack *stack, uint32_t *ret)
{
	const char *text = stop_texts[stack->stop], *place = strstr(text, "%s");
	char note[512];

	if (place)
		snprintf(note, sizeof(note), "[cut: %.*s%s%s]", (int)(place - text), text,
			 last_image(builder, stack), place + 2);
	else
		snprintf(note, sizeof(note), "[cut: %s]", text);
	return note_location(builder, note, ret);
}

static int add_site(struct builder *builder, const struct heap_site *site)
{
	const struct heap_stack *stack = site->stack;
	uint32_t locations[STACK_MAX_FRAMES + 1];
	struct profile_label labels[3 + PROCESS_LABELS];
	size_t location_count = 0, label_count = 0;
	const char *memory = accounts_memory(site->key.account);
	int64_t values[ACCOUNTS_MAX_VALUES], size = accounts_mean_size(site);
	int err = 0;

	if (!accounts_values(builder->input->accounts, site, values))
		return 0;
	if (stack->lost)
		err = note_location(builder, "[stack lost]", &locations[location_count++]);
	for (size_t i = 0; i < stack->count && !err; i++)
		err = frame_location(builder, stack->frames[i], site->key.serial,
				     &locations[location_count++]);
	if (!err && !stack->lost && stack->stop != STOP_END)
		err = cut_location(builder, stack, &locations[location_count++]);
	if (err)
		return err;

	if (size)
		labels[label_count++] = (struct profile_label){
			.key = profile_string(builder->profile, "bytes"),
			.number = size,
			.unit = profile_string(builder->profile, "bytes"),
		};
	if (memory)
		add_label(builder, labels, &label_count, "memory", memory);
	label_count += process_labels(builder, site->key.serial, labels + label_count);
	if (builder->input->threads)
		add_label(builder, labels, &label_count, "thread",
			  threads_label(builder->input->threads, site->key.thread));
	profile_add_sample(builder->profile, locations, location_count, values, labels,
			   label_count);
	return 0;
}

/*
 * pprof takes the first mapping for the program. Of one process it is that one's: where no image of
 * it is known it has no more than the name, and without a name it keeps the place from others.
 */
static int add_program(struct builder *builder)
{
	const struct snapshot_input *input = builder->input;
	struct profile_mapping mapping = {};

	if (!input->only_pid ? images_read_main(input->images, &builder->main_entry)
			     : input->program && images_read_named(input->images, input->program,
								   &builder->main_entry))
		return add_mapping(builder, &builder->main_entry) ? 0 : -ENOMEM;
	if (!input->only_pid)
		return 0;
	mapping.filename = profile_string(builder->profile, input->program);
	return profile_add_mapping(builder->profile, &mapping) ? 0 : -ENOMEM;
}

static int build(struct builder *builder)
{
	const struct snapshot_input *input = builder->input;
	char drop_frames[1024];
	struct profile *profile;
	int err;

	err = profile_new(&builder->profile);
	if (err)
		return err;
	profile = builder->profile;
	accounts_add_types(profile, input->accounts);
	profile->period_type.type = profile_string(profile, "space");
	profile->period_type.unit = profile_string(profile, "bytes");
	/* Programs that tell of their samples do not tell how far apart they are. */
	if (!input->own_samples || input->estimates[ESTIMATE_GEOMETRIC] ||
	    input->estimates[ESTIMATE_JEMALLOC] || input->estimates[ESTIMATE_SYSTEMATIC])
		profile->period = input->sample_bytes;
	profile->time_nanos = input->time_ns;
	profile->duration_nanos = input->duration_ns;
	snprintf(drop_frames, sizeof(drop_frames), DROP_FRAMES, input->symbol_prefix ? "|" : "",
		 input->symbol_prefix ? input->symbol_prefix : "");
	profile->drop_frames = profile_string(profile, drop_frames);

	err = add_program(builder);
	if (!err)
		err = locate_frames(builder);
	if (err)
		return err;
	for (const struct heap_site *site = heap_sites(input->heap); site; site = site->hh.next) {
		err = add_site(builder, site);
		if (err)
			return err;
	}
	snapshot_comment(profile, input);
	return profile_error(profile);
}

int snapshot_build(const struct snapshot_input *input, struct profile **ret)
{
	struct builder builder = {.input = input};
	int err = build(&builder);

	if (!err)
		*ret = take_ptr(builder.profile);
	builder_fini(&builder);
	return err;
}
