/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A slot is followed in two ways. A running process has the answer in memory, whatever made it:
 * the dynamic linker's rules, LD_PRELOAD, dlsym(). Where it has none yet (it does not run, lazy
 * binding has not bound the slot, dlopen() has not relocated the file) the slot's relocation names
 * a function, and the first file that exports one of this name is taken. Only functions of the
 * catalog are looked up so, and those that the file itself has: others lead nowhere that matters.
 * A variable of a program that does not run has what the file puts there.
 */
#include "probe/linkage.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>
#include <unistd.h>

#include "elf/plt.h"
#include "elf/slots.h"
#include "elf/symbols.h"
#include "elf/symtab.h"

struct module {
	struct image *image;
	uint64_t bias;
	struct linked_function *functions;
	size_t function_count;
	uint64_t unwinder; /* 0: none */
	uint64_t unwinder_size;
	/* What is only read when it is asked for. */
	struct symtab *symtab; /* NULL if there is none, too */
	struct slots slots;
	struct functions starts;
	bool truncated;
	bool has_symtab;
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
	for (size_t i = 0; i < module->function_count; i++)
		free((char *)module->functions[i].name);
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

/* The name is copied. */
static int add_function(const struct linkage *linkage, struct module *module, const char *name,
			struct linked_function added)
{
	struct linked_function *functions;

	added.function = catalog_lookup(name, linkage->extra_prefix, &added.family);
	if (!added.function)
		return 0;
	if (module->function_count == LINKAGE_MAX_FUNCTIONS) {
		module->truncated = true;
		return 0;
	}
	for (size_t i = 0; i < module->function_count; i++) {
		if (module->functions[i].start != added.start ||
		    strcmp(module->functions[i].name, name))
			continue;
		module->functions[i].exported |= added.exported;
		return 0;
	}
	functions = reallocarray(module->functions, module->function_count + 1, sizeof(*functions));
	if (!functions)
		return -ENOMEM;
	module->functions = functions;
	added.name = strdup(name);
	if (!added.name)
		return -ENOMEM;
	functions[module->function_count++] = added;
	return 0;
}

/* What a table has is added before the next is read: names live as long as the symbols. */
static int add_symbols(const struct linkage *linkage, struct module *module, Elf *elf,
		       uint32_t table)
{
	struct symbols symbols = {};
	/* Of a damaged table, what was read is taken. */
	int err = symbols_add_tables(&symbols, elf, table) == -ENOMEM ? -ENOMEM : 0;

	for (size_t i = 0; i < symbols.count && !err; i++) {
		const struct symbol *symbol = &symbols.entries[i].symbol;
		const struct linked_function function = {
			.start = symbol->start,
			.size = symbol->size,
			.exported = table == SHT_DYNSYM,
		};

		if (!strcmp(symbol->name, "_Unwind_RaiseException")) {
			module->unwinder = symbol->start;
			module->unwinder_size = symbol->size;
		}
		/* At an ifunc's address is the function that chooses the real one. */
		if (!symbol->ifunc)
			err = add_function(linkage, module, symbol->name, function);
	}
	symbols_fini(&symbols);
	return err;
}

static int compare_functions(const void *a, const void *b)
{
	const struct linked_function *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return strcmp(x->name, y->name);
}

int linkage_add(struct linkage *linkage, struct image *image, uint64_t bias)
{
	struct module *modules, module = {.image = image, .bias = bias};
	/* Tables can be large: what is read of them is not kept. */
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	int err = 0;

	modules = reallocarray(linkage->modules, linkage->count + 1, sizeof(*modules));
	if (!modules)
		return -ENOMEM;
	linkage->modules = modules;
	if (elf)
		err = add_symbols(linkage, &module, elf, SHT_DYNSYM);
	if (elf && !err)
		err = add_symbols(linkage, &module, elf, SHT_SYMTAB);
	if (err) {
		module_fini(&module);
		return err;
	}
	if (module.function_count)
		qsort(module.functions, module.function_count, sizeof(*module.functions),
		      compare_functions);
	modules[linkage->count++] = module;
	return 0;
}

int linkage_add_function(struct linkage *linkage, uint32_t module, const char *name, uint64_t start,
			 uint64_t size)
{
	const struct linked_function function = {.start = start, .size = size};

	return add_function(linkage, &linkage->modules[module], name, function);
}

size_t linkage_count(const struct linkage *linkage)
{
	return linkage->count;
}

struct image *linkage_image(const struct linkage *linkage, uint32_t module)
{
	return linkage->modules[module].image;
}

bool linkage_is_loaded(const struct linkage *linkage, uint32_t module)
{
	return linkage->modules[module].bias != LINKAGE_NOT_LOADED;
}

bool linkage_is_truncated(const struct linkage *linkage, uint32_t module)
{
	return linkage->modules[module].truncated;
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

bool linkage_has_known_unwinder(struct linkage *linkage, uint32_t index)
{
	/* Of libgcc_s and libstdc++: to throw, to clean up on the way, to catch. */
	static const char *const imports[] = {
		"_Unwind_RaiseException",   "_Unwind_Resume", "__gxx_personality_v0", "__cxa_throw",
		"_ZSt17__throw_bad_allocv",
	};

	if (linkage->modules[index].unwinder)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(imports); i++)
		if (linkage_imports(linkage, index, imports[i]))
			return true;
	return false;
}

bool linkage_can_throw(struct linkage *linkage, uint32_t index)
{
	Elf *elf = image_elf(linkage->modules[index].image);
	bool has_sections = false;
	Elf_Scn *scn = NULL;
	size_t names;

	while (!elf_getshdrstrndx(elf, &names) && (scn = elf_nextscn(elf, scn))) {
		GElf_Shdr shdr;
		const char *name =
			gelf_getshdr(scn, &shdr) ? elf_strptr(elf, names, shdr.sh_name) : NULL;

		has_sections |= name && !strcmp(name, ".text");
		if (name && !strcmp(name, ".gcc_except_table"))
			return true;
	}
	return !has_sections || linkage_imports(linkage, index, "__cxa_throw") ||
	       linkage_imports(linkage, index, "_ZSt17__throw_bad_allocv");
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

bool linkage_looks_up(struct linkage *linkage, uint32_t module)
{
	return linkage_imports(linkage, module, "dlsym") ||
	       linkage_imports(linkage, module, "dlvsym");
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

/*
 * Whether the dynamic linker has not been at a word: it adds the bias to what the file has there,
 * such as the way into the PLT of a slot that is bound at its first call.
 */
static bool is_unrelocated(const struct module *module, uint64_t vaddr, uint64_t word)
{
	uint64_t in_file;
	size_t size;
	const uint8_t *bytes =
		module->bias ? image_bytes(module->image, vaddr, sizeof(in_file), &size) : NULL;

	if (!bytes || size != sizeof(in_file))
		return false;
	memcpy(&in_file, bytes, sizeof(in_file));
	return word == in_file;
}

/* False if there is nothing there yet. */
static bool follow_memory(const struct linkage *linkage, struct place slot, struct place *ret)
{
	const struct module *module = &linkage->modules[slot.module];
	uint64_t address;

	if (linkage->memory_fd < 0 || module->bias == LINKAGE_NOT_LOADED ||
	    pread(linkage->memory_fd, &address, sizeof(address), module->bias + slot.vaddr) !=
		    sizeof(address) ||
	    !address || is_unrelocated(module, slot.vaddr, address))
		return false;
	if (!place_of(linkage, address, ret))
		*ret = (struct place){LINKAGE_ELSEWHERE, address};
	return true;
}

static const struct symbol *own_symbol(struct module *module, const char *name)
{
	if (!module->has_symtab && symtab_load(module->image, &module->symtab))
		module->symtab = NULL;
	module->has_symtab = true;
	return module->symtab ? symtab_find(module->symtab, name) : NULL;
}

static bool follow_name(struct linkage *linkage, uint32_t from, const char *name, struct place *ret)
{
	const struct symbol *own;

	for (size_t i = 0; i < linkage->count; i++) {
		const struct module *module = &linkage->modules[i];

		for (size_t j = 0; j < module->function_count; j++) {
			if (!module->functions[j].exported ||
			    strcmp(module->functions[j].name, name))
				continue;
			*ret = (struct place){i, module->functions[j].start};
			return true;
		}
	}
	/* Another file may replace it, but a function that allocators use inside is their own. */
	own = linkage->modules[from].function_count ? own_symbol(&linkage->modules[from], name)
						    : NULL;
	if (own && !own->ifunc)
		*ret = (struct place){from, own->start};
	return own && !own->ifunc;
}

static bool defines(const struct module *module, const char *name, uint64_t vaddr)
{
	for (size_t i = 0; i < module->function_count; i++)
		if (module->functions[i].start == vaddr && !strcmp(module->functions[i].name, name))
			return true;
	return false;
}

static bool is_stub(const struct module *module, const char *name, uint64_t vaddr)
{
	/* Asked for rarely: the stubs are not kept. */
	Elf *elf CLEANUP(elf) = image_elf_new(module->image);
	struct plt plt = {};
	bool found = false;

	if (!elf || plt_find(elf, &plt))
		return false;
	for (size_t i = 0; i < plt.count && !found; i++)
		found = plt.stubs[i].start == vaddr && plt.stubs[i].name &&
			!strcmp(plt.stubs[i].name, name);
	free(plt.stubs);
	return found;
}

/* Whether what memory has for a name says where the function is. */
static bool is_bound(struct linkage *linkage, struct place slot, const char *name,
		     struct place memory)
{
	if (memory.module == LINKAGE_ELSEWHERE ||
	    defines(&linkage->modules[memory.module], name, memory.vaddr))
		return true;
	/* A slot that leads into its own file, but not to a definition, is not bound yet. */
	if (memory.module == slot.module)
		return false;
	/* A program at fixed addresses that takes the function's has its own stub stand for it. */
	return !linkage_imports(linkage, memory.module, name) ||
	       !is_stub(&linkage->modules[memory.module], name, memory.vaddr);
}

static bool follow_named(struct linkage *linkage, struct place slot, const char *name,
			 struct place *ret)
{
	struct place memory, named;

	if (follow_memory(linkage, slot, &memory) && is_bound(linkage, slot, name, memory)) {
		*ret = memory;
		return true;
	}
	if (!follow_name(linkage, slot.module, name, &named))
		return false;
	*ret = named;
	return true;
}

/* What the file itself puts into a word: the address of a function of its own. */
static bool follow_file(const struct linkage *linkage, struct place slot, struct place *ret)
{
	struct image *image = linkage->modules[slot.module].image;
	const uint8_t *bytes;
	uint64_t vaddr = 0;
	size_t size;

	if (!slots_find_relative(image_elf(image), slot.vaddr, &vaddr)) {
		bytes = image_bytes(image, slot.vaddr, sizeof(vaddr), &size);
		if (bytes && size == sizeof(vaddr))
			memcpy(&vaddr, bytes, sizeof(vaddr));
	}
	*ret = (struct place){slot.module, vaddr};
	return vaddr;
}

bool linkage_follow(struct linkage *linkage, struct place slot, struct place *ret)
{
	struct module *module = &linkage->modules[slot.module];
	const struct slot *known = slots_at(module_slots(module), slot.vaddr);

	if (known && known->name)
		return follow_named(linkage, slot, known->name, ret);
	if (follow_memory(linkage, slot, ret))
		return true;
	if (known) {
		/* What an ifunc chooses is no allocation function. */
		*ret = (struct place){LINKAGE_ELSEWHERE, 0};
		return true;
	}
	/* What runs has forgotten it. */
	return module->bias == LINKAGE_NOT_LOADED && follow_file(linkage, slot, ret);
}
