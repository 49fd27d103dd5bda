/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "probe/locate.h"

#include <errno.h>
#include <gelf.h>
#include <stdarg.h>
#include <string.h>

#include "elf/debuginfo.h"
#include "elf/minidebug.h"
#include "elf/symtab.h"
#include "probe/resemble.h"
#include "probe/signatures.h"

/* Debian's glibc, which most static programs have there. */
#define DEFAULT_LIBRARY "/usr/lib/x86_64-linux-gnu/libc.a"

/* What is known of an image in which nothing was found. */
struct failure {
	char *path;
	bool is_static;
	bool stripped;
	bool has_build_id;
	size_t ambiguous; /* functions */
	const struct resemble_allocator *resembles;
};

struct locator {
	char **files; /* of signatures */
	size_t file_count;
	struct signatures **signatures; /* by file, once loaded */
	bool loaded;
	char error[512];
	struct debuginfo *debuginfo;
	int root_fd;
	bool download;
	char **names; /* of symbols that were found */
	size_t name_count;
	struct failure failure; /* path is NULL: none */
};

/* Functions while they are gathered. */
struct gathering {
	struct locator *locator;
	struct image *image;
	bool (*wanted)(const char *name, void *arg);
	void *arg;
	struct located_function *entries;
	size_t count;
};

void locator_free(struct locator *locator)
{
	if (!locator)
		return;
	for (size_t i = 0; i < locator->file_count; i++) {
		free(locator->files[i]);
		signatures_free(locator->signatures[i]);
	}
	for (size_t i = 0; i < locator->name_count; i++)
		free(locator->names[i]);
	free(locator->files);
	free(locator->signatures);
	free(locator->names);
	free(locator->failure.path);
	debuginfo_free(locator->debuginfo);
	free(locator);
}

int locator_new(const struct locate_options *options, struct locator **ret)
{
	struct locator *locator CLEANUP(locator) = calloc(1, sizeof(*locator));
	int err;

	if (!locator)
		return -ENOMEM;
	locator->root_fd = options->root_fd;
	locator->download = options->download;
	locator->files = calloc(options->signature_file_count + 1, sizeof(*locator->files));
	locator->signatures =
		calloc(options->signature_file_count + 1, sizeof(*locator->signatures));
	if (!locator->files || !locator->signatures)
		return -ENOMEM;
	for (size_t i = 0; i < options->signature_file_count; i++) {
		locator->files[i] = strdup(options->signature_files[i]);
		if (!locator->files[i])
			return -ENOMEM;
		locator->file_count++;
	}
	err = debuginfo_new(options->debug_dirs, options->debug_dir_count, &locator->debuginfo);
	if (err)
		return err;
	*ret = take_ptr(locator);
	return 0;
}

static void explain(struct locator *locator, const char *file, int err)
{
	const char *why;

	switch (err) {
	case -ENOTSUP:
		why = " is a thin archive, which holds no code: give an archive made without T";
		break;
	case -ENOEXEC:
		why = " holds no x86-64 object files: give a static library (.a) or an object (.o)";
		break;
	case -ENODATA:
		why = " defines no allocation functions: give the library that malloc came from";
		break;
	case -E2BIG:
		why = " is larger than any library";
		break;
	default:
		snprintf(locator->error, sizeof(locator->error), "'%s': %s", file, strerror(-err));
		return;
	}
	snprintf(locator->error, sizeof(locator->error), "'%s'%s", file, why);
}

int locator_load(struct locator *locator, bool (*wanted)(const char *name, void *arg), void *arg)
{
	for (size_t i = 0; i < locator->file_count && !locator->loaded; i++) {
		int err;

		signatures_free(take_ptr(locator->signatures[i]));
		err = signatures_load(locator->files[i], wanted, arg, &locator->signatures[i]);
		if (err) {
			explain(locator, locator->files[i], err);
			return err;
		}
	}
	locator->loaded = true;
	return 0;
}

const char *locator_error(const struct locator *locator)
{
	return *locator->error ? locator->error : NULL;
}

/* Adds a function that is in the image's code, once. */
static int gather(struct gathering *gathering, const struct located_function *function)
{
	struct located_function *entries;
	uint64_t offset;

	if (image_vaddr_to_offset(gathering->image, function->start, &offset))
		return 0;
	for (size_t i = 0; i < gathering->count; i++)
		if (gathering->entries[i].start == function->start &&
		    !strcmp(gathering->entries[i].name, function->name))
			return 0;
	entries = reallocarray(gathering->entries, gathering->count + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	gathering->entries = entries;
	entries[gathering->count++] = *function;
	return 0;
}

/* A name that outlives the file it is from. */
static const char *keep_name(struct locator *locator, const char *name)
{
	char **names;

	for (size_t i = 0; i < locator->name_count; i++)
		if (!strcmp(locator->names[i], name))
			return locator->names[i];
	names = reallocarray(locator->names, locator->name_count + 1, sizeof(*names));
	if (!names)
		return NULL;
	locator->names = names;
	names[locator->name_count] = strdup(name);
	return names[locator->name_count] ? names[locator->name_count++] : NULL;
}

static int gather_symbol(const struct symbol *symbol, void *context)
{
	struct gathering *gathering = context;
	struct located_function function = {
		.start = symbol->start,
		.size = symbol->size,
		.ifunc = symbol->ifunc,
	};

	if (!gathering->wanted(symbol->name, gathering->arg))
		return 0;
	function.name = keep_name(gathering->locator, symbol->name);
	return function.name ? gather(gathering, &function) : -ENOMEM;
}

/* From a file that has the image's symbols; NULL: there is none. */
static int gather_symbols(struct gathering *gathering, struct image *symbols)
{
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int err = symbols ? symtab_load(symbols, &symtab) : -ENOENT;

	if (err)
		return err == -ENOMEM ? err : 0;
	return symtab_for_each(symtab, gather_symbol, gathering);
}

static int search_debug_file(struct gathering *gathering, bool download)
{
	struct locator *locator = gathering->locator;
	struct image *debug CLEANUP(image) = NULL;
	int err = debuginfo_find(locator->debuginfo, gathering->image, locator->root_fd, download,
				 &debug);

	return err == -ENOMEM ? err : gather_symbols(gathering, debug);
}

static int search_minidebug(struct gathering *gathering)
{
	struct image *mini CLEANUP(image) = NULL;
	int err = minidebug_open(gathering->image, &mini);

	return err == -ENOMEM ? err : gather_symbols(gathering, mini);
}

static int search_signatures(struct gathering *gathering, size_t *ambiguous)
{
	const struct locator *locator = gathering->locator;

	for (size_t i = 0; i < locator->file_count; i++) {
		struct signature_hits hits __attribute__((cleanup(signature_hits_fini))) = {};
		int err = signatures_find(locator->signatures[i], gathering->image, &hits);

		if (err == -ENOMEM)
			return err;
		for (size_t j = 0; j < hits.count && err != -ENOMEM; j++) {
			const struct located_function function = {
				.name = hits.entries[j].name,
				.start = hits.entries[j].start,
				.size = hits.entries[j].size,
			};

			err = gathering->wanted(function.name, gathering->arg)
				      ? gather(gathering, &function)
				      : 0;
		}
		if (err == -ENOMEM)
			return err;
		*ambiguous += hits.ambiguous;
	}
	return 0;
}

bool locate_is_static(const struct image *image)
{
	return image_is_executable(image) && !image_interpreter(image);
}

static bool is_stripped(const struct image *image)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while (elf && (scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_SYMTAB)
			return false;
	return true;
}

int locate_debug_file(struct locator *locator, struct image *image, struct image **ret)
{
	if (!is_stripped(image))
		return -ENOENT;
	return debuginfo_find(locator->debuginfo, image, locator->root_fd, false, ret);
}

static int likelihood(const struct failure *failure)
{
	return 2 * (failure->resembles != NULL) + failure->is_static;
}

static void note_failure(struct locator *locator, struct image *image, size_t ambiguous)
{
	struct failure failure = {
		.is_static = locate_is_static(image),
		.stripped = is_stripped(image),
		.has_build_id = *image_build_id(image),
		.ambiguous = ambiguous,
		.resembles = resemble_image(image),
	};

	if (locator->failure.path && likelihood(&failure) <= likelihood(&locator->failure))
		return;
	failure.path = strdup(image_path(image));
	if (!failure.path)
		return;
	free(locator->failure.path);
	locator->failure = failure;
}

int locate_more(struct locator *locator, struct image *image,
		bool (*wanted)(const char *name, void *arg), void *arg,
		struct located_function **ret, size_t *ret_count)
{
	struct gathering gathering = {
		.locator = locator,
		.image = image,
		.wanted = wanted,
		.arg = arg,
	};
	size_t ambiguous = 0;
	int err = locator_load(locator, wanted, arg);

	if (err)
		return err;
	err = search_debug_file(&gathering, false);
	if (!err && !gathering.count)
		err = search_minidebug(&gathering);
	if (!err && !gathering.count && locator->download)
		err = search_debug_file(&gathering, true);
	if (!err && !gathering.count)
		err = search_signatures(&gathering, &ambiguous);
	if (err) {
		free(gathering.entries);
		return err;
	}
	if (!gathering.count)
		note_failure(locator, image, ambiguous);
	*ret = gathering.entries;
	*ret_count = gathering.count;
	return 0;
}

/* Appends to a text; what does not fit is cut. */
static void append(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
	size_t length = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + length, size - length, format, args);
	va_end(args);
}

/* What keeps debuginfod from being asked, or NULL. */
static const char *why_no_server(const struct locator *locator)
{
	const char *urls = getenv("DEBUGINFOD_URLS");
	struct debuginfo_stats stats;

	debuginfo_read_stats(locator->debuginfo, &stats);
	if (!locator->download)
		return "not allowed";
	if (!locator->failure.has_build_id)
		return "the file has no build-id";
	if (!urls || !urls[strspn(urls, " ")])
		return "DEBUGINFOD_URLS is not set";
	return stats.servers_failed ? "its servers could not be reached" : NULL;
}

static bool is_given(const struct locator *locator, const char *file)
{
	for (size_t i = 0; i < locator->file_count; i++)
		if (!strcmp(locator->files[i], file))
			return true;
	return false;
}

static void append_advice(const struct locator *locator, char *text, size_t size)
{
	const struct failure *failure = &locator->failure;
	const char *library = DEFAULT_LIBRARY;

	if (failure->resembles) {
		library = resemble_library(failure->resembles);
		append(text, size, "; it has %s", failure->resembles->name);
	}
	if (!library) {
		append(text, size, ", which heaptap does not see");
		return;
	}
	if (failure->ambiguous) {
		append(text, size,
		       ": the signatures fit at more than one place; give the "
		       "program's debug file with --debug-dir");
		return;
	}
	append(text, size,
	       locator->file_count ? ": give the very library that it was linked with"
				   : ": give the library that it was linked with");
	if (!is_given(locator, library))
		append(text, size, ", e.g. --signatures-from %s", library);
}

void locator_describe(const struct locator *locator, char *text, size_t size)
{
	const struct failure *failure = &locator->failure;
	const char *why = why_no_server(locator);

	if (!size)
		return;
	*text = '\0';
	if (!failure->path)
		return;
	append(text, size, "%s is %s linked and %s; searched .symtab, .dynsym, %s, MiniDebugInfo, ",
	       failure->path, failure->is_static ? "statically" : "dynamically",
	       failure->stripped ? "stripped" : "not stripped",
	       failure->has_build_id ? "/usr/lib/debug by build-id" : "/usr/lib/debug");
	append(text, size, "debuginfod%s%s%s", why ? " (" : "", why ? why : "", why ? ")" : "");
	if (!locator->file_count)
		append(text, size, ", and no signatures");
	for (size_t i = 0; i < locator->file_count; i++)
		append(text, size, "%s%s", i ? ", " : ", and signatures from ", locator->files[i]);
	append_advice(locator, text, size);
}
