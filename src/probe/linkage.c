/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A slot is followed in two ways. A running process has the answer in memory, whatever made it:
 * the dynamic linker's rules, LD_PRELOAD, dlsym(). Where it has none yet (it does not run, lazy
 * binding has not bound the slot, dlopen() has not relocated the file) the slot's relocation names
 * a function, and the first file that defines one of this name is taken. Only functions of the
 * catalog are looked up so, and those that the file itself has: others lead nowhere that matters.
 */
#include "probe/linkage.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "elf/slots.h"
#include "elf/symtab.h"

struct module {
	struct image *image;
	uint64_t bias;
	struct symtab *symtab; /* kept for the names, if there are functions */
	struct linked_function *functions;
	size_t function_count;
	char **names; /* of functions that were added */
	size_t name_count;
	uint64_t unwinder; /* 0: none */
	uint64_t unwinder_size;
	struct slots slots;
	struct functions starts;
	bool has_slots;
	bool has_starts;
};

struct linkage {
	int memory_fd;
	char *extra_prefix;
	struct module *modules;
	size_t count;
};

int linkage_new(int memory_fd, const char *extra_prefix, struct linkage **ret)
{
	struct linkage *linkage CLEANUP(linkage) = calloc(1, sizeof(*linkage));

	if (!linkage)
		return -ENOMEM;
	linkage->memory_fd = memory_fd;
	if (extra_prefix && !(linkage->extra_prefix = strdup(extra_prefix)))
		return -ENOMEM;
	*ret = take_ptr(linkage);
	return 0;
}

static void module_fini(struct module *module)
{
	for (size_t i = 0; i < module->name_count; i++)
		free(module->names[i]);
	free(module->names);
	free(module->functions);
	slots_fini(&module->slots);
	symtab_free(module->symtab);
}

void linkage_free(struct linkage *linkage)
{
	if (!linkage)
		return;
	for (size_t i = 0; i < linkage->count; i++)
		module_fini(&linkage->modules[i]);
	free(linkage->modules);
	free(linkage->extra_prefix);
	free(linkage);
}

struct adding {
	struct linkage *linkage;
	struct module *module;
};

static int add_function(const struct adding *adding, const char *name, uint64_t start,
			uint64_t size)
{
	struct module *module = adding->module;
	struct linked_function *functions, added = {.name = name, .start = start, .size = size};

	added.function = catalog_lookup(name, adding->linkage->extra_prefix, &added.family);
	if (!added.function)
		return 0;
	functions = reallocarray(module->functions, module->function_count + 1, sizeof(*functions));
	if (!functions)
		return -ENOMEM;
	module->functions = functions;
	functions[module->function_count++] = added;
	return 0;
}

static int add_symbol(const struct symbol *symbol, void *context)
{
	const struct adding *adding = context;

	if (!strcmp(symbol->name, "_Unwind_RaiseException")) {
		adding->module->unwinder = symbol->start;
		adding->module->unwinder_size = symbol->size;
	}
	/* At an ifunc's address is the function that chooses the real one. */
	return symbol->ifunc ? 0 : add_function(context, symbol->name, symbol->start, symbol->size);
}

int linkage_add(struct linkage *linkage, struct image *image, uint64_t bias)
{
	struct symtab *symtab CLEANUP(symtab) = NULL;
	struct module *modules, module = {.image = image, .bias = bias};
	struct adding adding = {linkage, &module};
	int err;

	modules = reallocarray(linkage->modules, linkage->count + 1, sizeof(*modules));
	if (!modules)
		return -ENOMEM;
	linkage->modules = modules;
	err = symtab_load(image, &symtab);
	if (!err)
		err = symtab_for_each(symtab, add_symbol, &adding);
	if (err == -ENOMEM) {
		module_fini(&module);
		return err;
	}
	if (module.function_count)
		module.symtab = take_ptr(symtab);
	modules[linkage->count++] = module;
	return 0;
}

int linkage_add_function(struct linkage *linkage, uint32_t index, const char *name, uint64_t start,
			 uint64_t size)
{
	struct module *module = &linkage->modules[index];
	const struct adding adding = {linkage, module};
	char **names = reallocarray(module->names, module->name_count + 1, sizeof(*names));
	char *copy = strdup(name);

	if (names)
		module->names = names;
	if (!names || !copy) {
		free(copy);
		return -ENOMEM;
	}
	names[module->name_count++] = copy;
	return add_function(&adding, copy, start, size);
}

size_t linkage_count(const struct linkage *linkage)
{
	return linkage->count;
}

struct image *linkage_image(const struct linkage *linkage, uint32_t module)
{
	return linkage->modules[module].image;
}

const struct linked_function *linkage_functions(const struct linkage *linkage, uint32_t module,
						size_t *ret_count)
{
	*ret_count = linkage->modules[module].function_count;
	return linkage->modules[module].functions;
}

bool linkage_unwinder(const struct linkage *linkage, uint32_t module, uint64_t *ret_vaddr,
		      uint64_t *ret_size)
{
	*ret_vaddr = linkage->modules[module].unwinder;
	*ret_size = linkage->modules[module].unwinder_size;
	return *ret_vaddr;
}

const struct functions *linkage_starts(struct linkage *linkage, uint32_t index)
{
	struct module *module = &linkage->modules[index];

	if (!module->has_starts)
		module->starts = functions_load(module->image);
	module->has_starts = true;
	return &module->starts;
}

static const struct slots *module_slots(struct module *module)
{
	/* Without memory for them there are none: code that leads nowhere is code of its own. */
	if (!module->has_slots && slots_load(image_elf(module->image), &module->slots))
		module->slots = (struct slots){};
	module->has_slots = true;
	return &module->slots;
}

const char *linkage_slot_name(struct linkage *linkage, struct place place)
{
	const struct slot *slot =
		slots_at(module_slots(&linkage->modules[place.module]), place.vaddr);

	return slot ? slot->name : NULL;
}

bool linkage_imports(struct linkage *linkage, uint32_t module, const char *name)
{
	const struct slots *slots = module_slots(&linkage->modules[module]);

	for (size_t i = 0; i < slots->count; i++)
		if (slots->entries[i].name && !strcmp(slots->entries[i].name, name))
			return true;
	return false;
}

static bool place_of(const struct linkage *linkage, uint64_t address, struct place *ret)
{
	uint64_t offset;

	for (size_t i = 0; i < linkage->count; i++) {
		const struct module *module = &linkage->modules[i];

		if (module->bias == LINKAGE_NOT_LOADED ||
		    image_vaddr_to_offset(module->image, address - module->bias, &offset))
			continue;
		*ret = (struct place){i, address - module->bias};
		return true;
	}
	return false;
}

static bool follow_memory(const struct linkage *linkage, struct place slot, struct place *ret)
{
	const struct module *module = &linkage->modules[slot.module];
	uint64_t address;

	if (linkage->memory_fd < 0 || module->bias == LINKAGE_NOT_LOADED ||
	    pread(linkage->memory_fd, &address, sizeof(address), module->bias + slot.vaddr) !=
		    sizeof(address))
		return false;
	return place_of(linkage, address, ret);
}

static bool follow_name(const struct linkage *linkage, uint32_t from, const char *name,
			struct place *ret)
{
	const struct symbol *own;

	for (size_t i = 0; i < linkage->count; i++) {
		const struct module *module = &linkage->modules[i];

		for (size_t j = 0; j < module->function_count; j++) {
			if (strcmp(module->functions[j].name, name))
				continue;
			*ret = (struct place){i, module->functions[j].start};
			return true;
		}
	}
	/* Another file may replace it, but a function that allocators use inside is their own. */
	own = linkage->modules[from].symtab ? symtab_find(linkage->modules[from].symtab, name)
					    : NULL;
	if (own && !own->ifunc)
		*ret = (struct place){from, own->start};
	return own && !own->ifunc;
}

bool linkage_follow(struct linkage *linkage, struct place slot, struct place *ret)
{
	const char *name = linkage_slot_name(linkage, slot);
	struct place memory, named;
	bool has_name = name && follow_name(linkage, slot.module, name, &named);
	bool has_memory = follow_memory(linkage, slot, &memory);

	/* A slot that leads into its own file, but not to the definition, is not bound yet. */
	if (has_memory && name && memory.module == slot.module &&
	    !(has_name && named.module == memory.module && named.vaddr == memory.vaddr))
		has_memory = false;
	if (!has_memory && !has_name)
		return false;
	*ret = has_memory ? memory : named;
	return true;
}
