/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "doctor_code.h"

#include <errno.h>
#include <string.h>

#include "elf/debuginfo.h"
#include "elf/symbol_source.h"
#include "elf/symtab.h"
#include "unwind/coverage.h"

/* Of the largest files; the others are summed up, unless something is wrong with them. */
#define MAX_LISTED 12

/* A file whose code has fewer rows is listed in any case. */
#define GOOD_SHARE 0.9

struct file_code {
	const char *path;
	struct coverage coverage;
	enum symbol_source source;
};

static const char *const source_names[] = {
	[SYMBOL_SOURCE_OWN] = ".symtab",	 [SYMBOL_SOURCE_DEBUG] = "debug file",
	[SYMBOL_SOURCE_MINIDEBUG] = "minidebug", [SYMBOL_SOURCE_DYNAMIC] = "exports only",
	[SYMBOL_SOURCE_NONE] = "no names",
};

static double share(uint64_t part, uint64_t all)
{
	return all ? (double)part / all : 1;
}

static uint64_t with_rows(const struct coverage *coverage)
{
	return coverage->described + coverage->decoded;
}

static int by_size(const void *a, const void *b)
{
	const struct file_code *x = a, *y = b;

	return (x->coverage.code < y->coverage.code) - (x->coverage.code > y->coverage.code);
}

/* What cannot be read counts as code without rows and names. */
static struct file_code look_at(struct image *image, struct debuginfo *debuginfo, int root_fd)
{
	struct file_code code = {.path = image_path(image), .source = SYMBOL_SOURCE_NONE};
	struct symtab *symtab CLEANUP(symtab) = NULL;

	if (symtab_load(image, &symtab))
		symtab = NULL;
	coverage_of_code(image, symtab, &code.coverage);
	symbol_source_find(image, debuginfo, root_fd, &code.source);
	return code;
}

static void describe_jit(const struct maps *maps)
{
	uint64_t bytes = 0;
	size_t count = 0;

	for (size_t i = 0; i < maps->count; i++) {
		const struct mapping *mapping = &maps->entries[i];

		if (!mapping->executable || !strcmp(mapping->path, "[vdso]") ||
		    !strcmp(mapping->path, "[vsyscall]") ||
		    (mapping->inode && strncmp(mapping->path, "/memfd:", 7)))
			continue;
		count++;
		bytes += mapping->end - mapping->start;
	}
	if (count)
		doctor_say("JIT code",
			   "%zu mappings, %.1f MB: walked by frame pointers, where it keeps them",
			   count, bytes / 1048576.0);
}

static void describe_files(const struct file_code *files, size_t count)
{
	size_t names[ARRAY_SIZE(source_names)] = {}, listed = 0;
	uint64_t code = 0, rows = 0;
	char text[256] = "";

	for (size_t i = 0; i < count; i++) {
		code += files[i].coverage.code;
		rows += with_rows(&files[i].coverage);
		names[files[i].source]++;
	}
	for (size_t i = 0; i < ARRAY_SIZE(source_names); i++)
		if (names[i])
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s %zu",
				 *text ? ", " : "", source_names[i], names[i]);
	doctor_say("stacks", "%.1f %% of %.1f MB of code has unwind rows; of %zu files:",
		   100 * share(rows, code), code / 1048576.0, count);
	for (size_t i = 0; i < count; i++) {
		const struct coverage *coverage = &files[i].coverage;
		double part = share(with_rows(coverage), coverage->code);

		if (i >= MAX_LISTED && part >= GOOD_SHARE)
			continue;
		listed++;
		printf("    %5.1f %% of %8.0f KB  %-12s  %s%s\n", 100 * part,
		       coverage->code / 1024.0, source_names[files[i].source], files[i].path,
		       coverage->decoded > coverage->described
			       ? ": no unwind information, decoded from its code"
		       : part < GOOD_SHARE ? ": the rest is walked by frame pointers"
					   : "");
	}
	if (listed < count)
		printf("    %zu more files are smaller, with rows for at least %.0f %%\n",
		       count - listed, 100 * GOOD_SHARE);
	doctor_say("names", "%s", text);
}

void doctor_describe_code(const struct doctor *doctor, const struct process_points *process)
{
	_cleanup_free_ struct file_code *files = calloc(process->count + 1, sizeof(*files));
	struct debuginfo *debuginfo CLEANUP(debuginfo) = NULL;

	if (!files ||
	    debuginfo_new(doctor->points.debug_dirs, doctor->points.debug_dir_count, &debuginfo)) {
		doctor_say("stacks", "not known: no memory");
		return;
	}
	for (size_t i = 0; i < process->count; i++)
		files[i] = look_at(process->files[i].image, debuginfo, process->root_fd);
	qsort(files, process->count, sizeof(*files), by_size);
	describe_files(files, process->count);
	describe_jit(process->maps);
}
