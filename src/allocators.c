/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A call goes in steps over the list of its new files: open them all and learn their image ids,
 * publish unwind tables, find the probe points, place the probes, and hand the files to images. For
 * files that come late the tables are built in the background.
 */
#include "allocators.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "heaptap/unwind.h"
#include "modules.h"
#include "new_files.h"
#include "points_log.h"
#include "probe/catalog.h"
#include "probe/linkage.h"
#include "probe/nested_sets.h"
#include "probe/points.h"
#include "probe/sampler_attach.h"
#include "proc/maps.h"
#include "util/clock.h"
#include "samplers.h"
#include "util/log.h"

/* Files whose names an error message lists before it says "and N more". */
#define MAX_NAMED_FILES 4

struct allocators {
	struct allocators_context context;
	struct known_files *known;
	struct locator *locator;
	struct allocator_files files;
	struct nested_sets nested_sets; /* of the files with probes */
	bool may_come;
	struct allocators_late late;
	size_t probed;
	size_t points;	/* of the kinds that are called most: malloc, new, free */
	size_t stepped; /* of these, those that the kernel single-steps */
	uint32_t sampler_points;
	size_t searched;
	char searched_names[256];
};

/* Whether the catalog has a function; arg is the allocators. */
static bool is_wanted(const char *name, void *arg)
{
	const struct allocators *allocators = arg;
	unsigned int family;

	return catalog_lookup(name, allocators->context.symbol_prefix, &family);
}

int allocators_new(const struct allocators_context *context, struct allocators **ret)
{
	struct allocators *allocators CLEANUP(allocators) = calloc(1, sizeof(*allocators));
	int err;

	if (!allocators || known_files_new(context->kernel, &allocators->known))
		return log_error(ENOMEM, "cannot start the session");
	allocators->context = *context;
	err = locator_new(&context->locate, &allocators->locator);
	if (err)
		return log_error(err, "cannot start the session");
	err = locator_load(allocators->locator, is_wanted, allocators);
	if (err && locator_error(allocators->locator))
		return log_error(0, "--signatures-from %s", locator_error(allocators->locator));
	if (err)
		return log_error(err, "cannot read the signature files");
	*ret = take_ptr(allocators);
	return 0;
}

void allocators_free(struct allocators *allocators)
{
	if (!allocators)
		return;
	known_files_free(allocators->known);
	locator_free(allocators->locator);
	allocator_files_fini(&allocators->files);
	nested_sets_fini(&allocators->nested_sets);
	free(allocators);
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
		return log_error(ENOMEM, "cannot build unwind tables");
	for (size_t i = 0; i < files->count; i++)
		order[i] = &files->entries[i];
	qsort(order, files->count, sizeof(*order), by_size);
	for (size_t i = 0; i < files->count; i++) {
		err = tables_build(allocators->context.tables, order[i]->id, order[i]->image,
				   allocators->context.all_rows);
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

/* Tells the kernel side of a file's nested calls, under a number that the points carry. */
static int add_nested_calls(struct allocators *allocators, const struct module *module,
			    struct module_points *points, uint8_t number)
{
	struct kernel *kernel = allocators->context.kernel;
	int err = 0;

	for (size_t i = 0; i < points->count; i++)
		points->entries[i].spec.image = number;
	for (size_t i = 0; i < points->nested_count && !err; i++)
		err = kernel_add_nested_call(kernel, number, points->nested[i]);
	for (size_t i = 0; i < points->foreign_count && !err; i++)
		err = kernel_add_foreign_call(kernel, module->id, points->foreign[i]);
	if (err == -E2BIG)
		log_warning("more than %d calls between allocation functions: what '%s' allocates "
			    "may be counted twice",
			    PROBE_MAX_NESTED_CALLS, image_path(module->image));
	return err == -E2BIG ? 0 : err;
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

static void count_stepped(struct allocators *allocators, const struct module_points *points)
{
	for (size_t i = 0; i < points->count; i++) {
		const struct probe_point *point = &points->entries[i];

		if (point->spec.kind != PROBE_ALLOC && point->spec.kind != PROBE_FREE)
			continue;
		allocators->points++;
		allocators->stepped += point->why_entry != NULL;
	}
}

/* What goes wrong with late files has been printed: it is a loss, and the others are taken in. */
static int pass_over(struct allocators *allocators, const struct new_files *files, size_t count,
		     int err)
{
	if (!err || !files->late || err == -ENOMEM)
		return err;
	kernel_note_loss(allocators->context.kernel, LOSS_ALLOCATOR_MISSED, count);
	return 0;
}

/* Places the probes of one file, if it has an allocator. */
static int attach_module(struct allocators *allocators, struct new_files *files,
			 const struct module *module, struct module_points *points)
{
	const char *path = image_path(module->image);
	uint8_t number;
	int err;

	points_log(module->image, points);
	if (!points->count)
		return 0;
	err = nested_sets_number(&allocators->nested_sets, points->nested, points->nested_count,
				 &number);
	if (err == -E2BIG) {
		log_warning("more than %d different files with allocators: '%s' is not probed",
			    PROBE_MAX_NESTED_SETS, path);
		kernel_note_loss(allocators->context.kernel, LOSS_ALLOCATOR_MISSED, 1);
		return 0;
	}
	if (err)
		return log_error(err, "place probes in '%s'", path);
	/* In the background, while probes are placed: either waits for a grace period. */
	if (files->late && !allocators->context.lazy_tables)
		tables_request(allocators->context.tables, module->id, module->image,
			       allocators->context.all_rows);
	err = add_nested_calls(allocators, module, points, number);
	if (!err)
		err = attach_points(allocators->context.attach, image_fd(module->image), points);
	if (err == -ESRCH)
		return err;
	if (err)
		return log_error(err, "cannot place probes in '%s'", path);
	allocators->probed++;
	count_stepped(allocators, points);
	if (files->late)
		report_late(allocators, module, points, files->since_ns);
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
	if (linkage_is_truncated(linkage, index))
		log_warning("'%s' has more than %d allocation functions by name: the others are "
			    "not probed",
			    image_path(module->image), LINKAGE_MAX_FUNCTIONS);
	if (image_interpreter(module->image))
		allocators->may_come = true;
	linkage_functions(linkage, index, &count);
	return count || points->has_unwinder ? allocator_files_add(&allocators->files, module) : 0;
}

/*
 * Before the first function that may throw gets its probe. Of a file that has its probes already,
 * this process may have another unwinder.
 */
static int attach_throws(struct allocators *allocators, const struct modules *modules,
			 const struct probe_points *points)
{
	bool wanted = false;

	for (size_t i = 0; i < modules->count; i++)
		wanted |= points->modules[i].throws;
	for (size_t i = 0; i < modules->count && wanted; i++) {
		struct allocator_file *file =
			allocator_files_find(&allocators->files, modules->entries[i].id);
		const char *path = image_path(modules->entries[i].image);
		int err;

		if (!points->modules[i].has_unwinder || !file || file->throw_probed)
			continue;
		err = attach_throw(allocators->context.attach, image_fd(file->image),
				   points->modules[i].throw_offset);
		if (err == -ESRCH)
			return err;
		if (err)
			return log_error(err, "cannot place the probe for exceptions in '%s'",
					 path);
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
		return log_error(err, "cannot search for allocators");
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
			err = pass_over(allocators, files, 1,
					attach_module(allocators, files, &modules->entries[i],
						      &points->modules[i]));
	}
	return err;
}

/* Looks elsewhere for the functions of a program that names none. */
static int locate_functions(struct allocators *allocators, struct linkage *linkage, uint32_t index,
			    const struct module *module)
{
	_cleanup_free_ struct located_function *located = NULL;
	size_t count;
	int err;

	linkage_functions(linkage, index, &count);
	if (count || !module->is_new ||
	    (!locate_is_static(module->image) && !allocators->context.locate.signature_file_count))
		return 0;
	err = locate_more(allocators->locator, module->image, is_wanted, allocators, &located,
			  &count);
	for (size_t i = 0; i < count && !err; i++) {
		log_verbose("Found by its code or debug file: %s %s", image_path(module->image),
			    located[i].name);
		if (!located[i].ifunc)
			err = linkage_add_function(linkage, index, located[i].name,
						   located[i].start, located[i].size);
	}
	return err;
}

/* Finds the probe points in the new files among the modules, and places the probes. */
static int probe_modules(struct allocators *allocators, struct new_files *files,
			 const struct modules *modules, int memory_fd)
{
	struct linkage *linkage CLEANUP(linkage) = NULL;
	int err;

	err = linkage_new(memory_fd, allocators->context.symbol_prefix, &linkage);
	for (size_t i = 0; i < modules->count && !err; i++)
		err = linkage_add(linkage, modules->entries[i].image, modules->entries[i].bias);
	for (size_t i = 0; i < modules->count && !err; i++)
		err = locate_functions(allocators, linkage, i, &modules->entries[i]);
	if (err)
		return log_error(err, "cannot search for allocators");
	return attach_modules(allocators, files, modules, linkage);
}

/* Tells the kernel side of what samples in a file, and places the probes. */
static int attach_samplers(struct allocators *allocators, struct new_file *file, bool late,
			   const struct sampler_probes *probes)
{
	const struct allocators_context *context = &allocators->context;
	const char *path = image_path(file->image);
	int err = 0;

	if (probes->count > SAMPLER_POINTS_MAX - allocators->sampler_points) {
		log_warning("more than %d places where allocators sample: '%s' is not probed",
			    SAMPLER_POINTS_MAX, path);
		kernel_note_loss(context->kernel, LOSS_ALLOCATOR_MISSED, 1);
		return 0;
	}
	/* A USDT probe is no call: its own frame's row lies between call sites. */
	if (probes->tells_allocs && late)
		tables_request(context->tables, file->id, file->image, true);
	else if (probes->tells_allocs)
		err = tables_build(context->tables, file->id, file->image, true);
	for (size_t i = 0; i < probes->count && !err; i++) {
		log_verbose("Probe point: %s %s", path, probes->entries[i].name);
		err = kernel_set_sampler_point(context->kernel, allocators->sampler_points + i,
					       &probes->entries[i].point);
	}
	if (!err)
		err = sampler_attach(context->attach, kernel_programs(context->kernel),
				     context->mode == ATTACH_SESSION, image_fd(file->image), probes,
				     allocators->sampler_points);
	if (err)
		return err == -ESRCH ? err : log_error(err, "cannot place probes in '%s'", path);
	allocators->sampler_points += probes->count;
	allocators->probed++;
	if (late)
		log_info("Sampler found in %s (loaded later): %zu probe points", path,
			 probes->count);
	return 0;
}

/* Finds what samples by itself in the new files, and probes it. */
static int probe_samplers(struct allocators *allocators, struct new_files *files)
{
	int err = 0;

	for (size_t i = 0; i < files->count && !err; i++) {
		struct sampler_probes probes CLEANUP(sampler_probes) = {};

		allocators->searched++;
		err = sampler_probes_find(files->entries[i].image, allocators->locator, false,
					  &probes);
		if (err)
			return log_error(err, "cannot search for allocators that sample");
		if (probes.count)
			err = pass_over(allocators, files, 1,
					attach_samplers(allocators, &files->entries[i], files->late,
							&probes));
	}
	return err;
}

/* In the background, for a late file. Without its table, stacks are cut there, and say so. */
static void request_table(struct allocators *allocators, const struct new_files *files,
			  const struct new_file *file)
{
	const struct allocators_context *context = &allocators->context;

	/* A stack may have gone through it in a process that was gone too soon to open it. */
	if (files->late && (!context->lazy_tables ||
			    kernel_image_flags(context->kernel, file->id) & UNWIND_WANTED))
		tables_request(context->tables, file->id, file->image, context->all_rows);
}

/* The images keep the files open. */
static int give_file(struct allocators *allocators, struct new_file *file)
{
	int err;

	/* Only names are asked of it from now on. */
	image_forget(file->image);
	err = images_add_file(allocators->context.images, file->id, take_ptr(file->image));

	return err ? log_error(err, "cannot keep the target's files") : 0;
}

/* pid and maps: of the process that maps the files; maps is NULL for a command. */
static int probe_files(struct allocators *allocators, struct new_files *files, pid_t pid,
		       const struct maps *maps)
{
	struct modules modules CLEANUP(modules) = {};
	_cleanup_close_ int memory_fd = -1;
	char path[64];
	int err;

	err = maps ? modules_of_process(pid, maps, allocators->known, files, &allocators->files,
					&modules)
		   : modules_of_command(files, &modules);
	if (err)
		return err;
	if (maps) {
		/* Without it, the files alone tell how allocation functions call each other. */
		snprintf(path, sizeof(path), "/proc/%d/mem", pid);
		memory_fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	err = probe_modules(allocators, files, &modules, memory_fd);
	allocator_files_forget(&allocators->files);
	return err;
}

/* As probe_files(). */
static int take_in(struct allocators *allocators, struct new_files *files, pid_t pid,
		   const struct maps *maps)
{
	int err;

	err = new_files_identify(files, allocators->known);
	/* Most processes have no file of their own. */
	if (err || !files->count)
		return err;
	for (size_t i = 0; i < files->count && !err; i++) {
		err = runtimes_note_image(allocators->context.runtimes, files->entries[i].image);
		if (err)
			return log_error(err, "cannot look for runtimes in the target's files");
	}
	if (!err && !files->late)
		err = build_tables(allocators, files);
	if (!err && allocators->context.samplers)
		err = probe_samplers(allocators, files);
	else if (!err && !allocators->context.no_probes)
		err = probe_files(allocators, files, pid, maps);
	err = pass_over(allocators, files, files->count, err);
	for (size_t i = 0; i < files->count && !err; i++) {
		request_table(allocators, files, &files->entries[i]);
		err = give_file(allocators, &files->entries[i]);
	}
	return err;
}

int allocators_add_files(struct allocators *allocators, char *const *paths, size_t count)
{
	struct new_files files CLEANUP(new_files) = {};
	int err;

	err = new_files_open_paths(&files, paths, count);
	return err ? err : take_in(allocators, &files, 0, NULL);
}

int allocators_add_process(struct allocators *allocators, pid_t pid)
{
	struct new_files files CLEANUP(new_files) = {};
	struct maps *maps CLEANUP(maps) = NULL;
	int err;

	err = maps_read(pid, &maps);
	if (err)
		return err;
	err = new_files_open_mappings(&files, allocators->known, pid, maps);
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

	err = new_files_open_mappings(&files, allocators->known, pid, maps);
	if (!err)
		err = take_in(allocators, &files, pid, maps);
	if (err)
		return err;
	images_locate(allocators->context.images, maps);
	return files.missed ? -EAGAIN : (int)files.count;
}

double allocators_stepped_share(const struct allocators *allocators)
{
	return allocators->points ? (double)allocators->stepped / allocators->points : 0;
}

struct allocators_late allocators_late(const struct allocators *allocators)
{
	return allocators->late;
}

bool allocators_may_come(const struct allocators *allocators)
{
	return allocators->may_come;
}

bool allocators_are_wanted(const struct allocators *allocators)
{
	return !allocators->context.no_probes;
}

size_t allocators_count(const struct allocators *allocators)
{
	return allocators->probed;
}

#define NONE_NEXT                                                                                  \
	"does it use functions with a prefix (--symbol-prefix)? --mode faults and --mmap-only "    \
	"need no allocator"

int allocators_report_none(const struct allocators *allocators, const char *words)
{
	const struct runtimes *runtimes = allocators->context.runtimes;
	char described[2048];

	if (allocators->context.samplers)
		return samplers_report_none(words, allocators->searched);
	if (runtimes_count(runtimes))
		return log_error(0, "no allocator found in %s, but there is %s", words,
				 runtimes_explain_none(runtimes));
	locator_describe(allocators->locator, described, sizeof(described));
	if (*described)
		return log_error(0, "no allocator found in %s: %s", words, described);
	if (allocators->searched > MAX_NAMED_FILES)
		return log_error(0,
				 "no allocator found in %s: neither %s nor the %zu files after "
				 "them define malloc and free; " NONE_NEXT,
				 words, allocators->searched_names,
				 allocators->searched - MAX_NAMED_FILES);
	return log_error(0,
			 "no allocator found in %s: %s does not define malloc and free; " NONE_NEXT,
			 words, allocators->searched_names);
}
