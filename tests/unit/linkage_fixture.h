/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compiled files taken together as those of a process, and what was decided about them. */
#ifndef HEAPTAP_TESTS_LINKAGE_FIXTURE_H
#define HEAPTAP_TESTS_LINKAGE_FIXTURE_H

#include "elf_fixture.h"

#include "elf/symtab.h"
#include "probe/linkage.h"
#include "probe/points.h"

#define FIXTURE_MAX_MODULES 8

/* Macros for sources in assembly: functions with unwind information, and labels in their code. */
#define ASM_MACROS                                                                                 \
	"	.macro func name\n"                                                                      \
	"	.balign 16\n"                                                                            \
	"	.globl \\name\n"                                                                         \
	"	.type \\name,@function\n"                                                                \
	"	\\name: .cfi_startproc\n"                                                                \
	"	.endm\n"                                                                                 \
	"	.macro endfunc name\n"                                                                   \
	"	.cfi_endproc\n"                                                                          \
	"	.size \\name,.-\\name\n"                                                                 \
	"	.endm\n"                                                                                 \
	"	.macro mark name\n"                                                                      \
	"	.globl \\name\n"                                                                         \
	"	.hidden \\name\n"                                                                        \
	"	.type \\name,@function\n"                                                                \
	"	\\name:\n"                                                                               \
	"	.endm\n"

struct linked {
	struct linkage *linkage;
	struct image *images[FIXTURE_MAX_MODULES];
	struct symtab *symtabs[FIXTURE_MAX_MODULES];
	size_t count;
	struct probe_points *points;
};

static inline void linked_init(struct linked *linked, int memory_fd, const char *prefix)
{
	*linked = (struct linked){};
	assert_int_equal(linkage_new(memory_fd, prefix, &linked->linkage), 0);
}

static inline void linked_add_loaded(struct linked *linked, const char *path, uint64_t bias)
{
	struct image *image = fixture_open(path);

	assert_true(linked->count < FIXTURE_MAX_MODULES);
	linked->images[linked->count] = image;
	assert_int_equal(symtab_load(image, &linked->symtabs[linked->count]), 0);
	linked->count++;
	assert_int_equal(linkage_add(linked->linkage, image, bias), 0);
}

static inline void linked_add(struct linked *linked, const char *path)
{
	linked_add_loaded(linked, path, LINKAGE_NOT_LOADED);
}

static inline void linked_find(struct linked *linked)
{
	assert_int_equal(
		probe_points_find(linked->linkage, &(struct points_options){}, &linked->points), 0);
	assert_int_equal(linked->points->module_count, linked->count);
}

static inline void linked_fini(struct linked *linked)
{
	probe_points_free(linked->points);
	linkage_free(linked->linkage);
	for (size_t i = 0; i < linked->count; i++) {
		symtab_free(linked->symtabs[i]);
		image_free(linked->images[i]);
	}
}

static inline uint64_t linked_address(const struct linked *linked, uint32_t module,
				      const char *name)
{
	const struct symbol *symbol = symtab_find(linked->symtabs[module], name);

	if (!symbol)
		fail_msg("no symbol '%s'", name);
	return symbol->start;
}

static inline uint32_t linked_offset(const struct linked *linked, uint32_t module, const char *name)
{
	uint64_t offset;

	assert_int_equal(image_vaddr_to_offset(linked->images[module],
					       linked_address(linked, module, name), &offset),
			 0);
	return (uint32_t)offset;
}

/* The point at the address of that name; NULL if there is none. */
static inline const struct probe_point *linked_point(const struct linked *linked, uint32_t module,
						     const char *name)
{
	const struct module_points *points = &linked->points->modules[module];

	for (size_t i = 0; i < points->count; i++)
		if (!strcmp(points->entries[i].name, name))
			return &points->entries[i];
	return NULL;
}

static inline const struct left_out *linked_left_out(const struct linked *linked, uint32_t module,
						     const char *name)
{
	const struct module_points *points = &linked->points->modules[module];

	for (size_t i = 0; i < points->left_out_count; i++)
		if (!strcmp(points->left_out[i].name, name))
			return &points->left_out[i];
	return NULL;
}

/* Space-separated names; each function that counts is one of them, and the other way round. */
static inline void linked_check_points(const struct linked *linked, uint32_t module,
				       const char *names)
{
	char copy[1024], *rest = copy, *name;
	size_t count = 0;

	assert_true(strlen(names) < sizeof(copy));
	strcpy(copy, names);
	while ((name = strsep(&rest, " "))) {
		if (!*name)
			continue;
		if (!linked_point(linked, module, name))
			fail_msg("module %u: '%s' is not probed", module, name);
		count++;
	}
	for (size_t i = 0; i < linked->points->modules[module].count; i++) {
		const char *point = linked->points->modules[module].entries[i].name;
		const char *found = strstr(names, point);

		while (found && ((found > names && found[-1] != ' ') ||
				 (found[strlen(point)] && found[strlen(point)] != ' ')))
			found = strstr(found + 1, point);
		if (!found)
			fail_msg("module %u: '%s' is probed", module, point);
	}
	assert_int_equal(linked->points->modules[module].count, count);
}

static inline bool linked_has_nested(const struct linked *linked, uint32_t module,
				     const char *label)
{
	const struct module_points *points = &linked->points->modules[module];

	for (size_t i = 0; i < points->nested_count; i++)
		if (points->nested[i] == linked_offset(linked, module, label))
			return true;
	return false;
}

static inline bool linked_has_foreign(const struct linked *linked, uint32_t module,
				      const char *label)
{
	const struct module_points *points = &linked->points->modules[module];

	for (size_t i = 0; i < points->foreign_count; i++)
		if (points->foreign[i] == linked_offset(linked, module, label))
			return true;
	return false;
}

#endif
