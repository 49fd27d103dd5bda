/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sections and exported functions of an image against the table below.
 *
 * Where the linker of Go writes its marks: cmd/link/internal/ld (elf.go, data.go) in Go's sources.
 * They survive strip, and the note survives even the loss of the section headers. The functions are
 * those by which other programs embed a runtime, so that its builds must export them.
 */
#include "probe/runtimes.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "elf/symbols.h"

#define MAX_EVIDENCE 4
#define MAX_RUNTIMES 16

/* Notes that the linker of Go writes are far shorter. */
#define NOTES_MAX_BYTES 65536u

enum evidence_kind {
	EVIDENCE_NONE,
	EVIDENCE_SECTION,
	EVIDENCE_NOTE, /* its owner */
	EVIDENCE_FUNCTION,
};

struct evidence {
	enum evidence_kind kind;
	const char *name;
};

struct runtime {
	const char *name;
	struct evidence evidence[MAX_EVIDENCE]; /* any of them is enough */
	const char *unseen;			/* "malloc does not serve ..." */
	const char *seen;			/* "heaptap counts ..." */
	const char *rest;			/* "To see the rest: ..." */
	/* An environment variable and the values with which malloc serves all. */
	const char *variable;
	const char *values[3];
};

static const struct runtime runtimes_known[] = {
	{
		.name = "Go",
		/* The last is of gccgo's library. */
		.evidence =
			{
				{EVIDENCE_SECTION, ".go.buildinfo"},
				{EVIDENCE_SECTION, ".gopclntab"},
				{EVIDENCE_NOTE, "Go"},
				{EVIDENCE_FUNCTION, "runtime.mallocgc"},
			},
		.unseen = "the Go heap",
		.seen = "what C code allocates (cgo)",
		.rest = "Go's own profiler (runtime/pprof, net/http/pprof)",
	},
	{
		.name = "Java",
		.evidence = {{EVIDENCE_FUNCTION, "JNI_CreateJavaVM"}},
		.unseen = "Java objects",
		.seen = "native memory: direct buffers, libraries, and the VM's own malloc",
		.rest = "jcmd PID GC.class_histogram, or a heap dump",
	},
	{
		.name = "V8",
		.evidence = {{EVIDENCE_FUNCTION, "_ZN2v82V810GetVersionEv"}},
		.unseen = "JavaScript objects (V8's heap)",
		.seen = "native memory: buffers, and what C and C++ code allocates",
		.rest = "node --heap-prof, or a heap snapshot",
	},
	{
		.name = "SpiderMonkey",
		.evidence = {{EVIDENCE_FUNCTION, "_Z13JS_NewContextjP9JSRuntime"}},
		.unseen = "JavaScript objects (SpiderMonkey's heap)",
		.seen = "native memory: what C and C++ code allocates",
		.rest = "the program's own memory reports",
	},
	{
		.name = "Python",
		.evidence = {{EVIDENCE_FUNCTION, "Py_Initialize"}},
		.unseen = "Python objects of up to 512 bytes (pymalloc's arenas)",
		.seen = "larger objects and buffers, and what C code allocates",
		.rest = "start it with PYTHONMALLOC=malloc in its environment",
		.variable = "PYTHONMALLOC",
		.values = {"malloc", "malloc_debug"},
	},
	{
		.name = ".NET",
		.evidence = {{EVIDENCE_FUNCTION, "coreclr_initialize"}},
		.unseen = ".NET objects",
		.seen = "native memory: what C and C++ code allocates",
		.rest = "dotnet-gcdump, dotnet-counters",
	},
	{
		.name = "Mono",
		.evidence = {{EVIDENCE_FUNCTION, "mono_jit_init"}},
		.unseen = ".NET objects",
		.seen = "native memory: what C code allocates",
		.rest = "mono --profile=log",
	},
	{
		.name = "Ruby",
		.evidence = {{EVIDENCE_FUNCTION, "ruby_init"}},
		.unseen = "the slots of Ruby objects one by one (it may serve pages of them)",
		.seen = "longer strings, arrays and hashes, and what C code allocates",
		.rest = "the objspace library",
	},
	{
		.name = "PHP",
		.evidence = {{EVIDENCE_FUNCTION, "_emalloc"}},
		.unseen = "PHP's values (the chunks of its memory manager)",
		.seen = "what outlives a request, and what libraries allocate",
		.rest = "start it with USE_ZEND_ALLOC=0 in its environment",
		.variable = "USE_ZEND_ALLOC",
		.values = {"0"},
	},
	{
		.name = "Erlang",
		.evidence = {{EVIDENCE_FUNCTION, "enif_alloc"}},
		.unseen = "Erlang terms one by one (it may serve carriers, which hold many)",
		.seen = "what C code allocates past the VM's allocators",
		.rest = "erlang:memory(), or start it with +Mea min, with which malloc serves all",
	},
	{
		.name = "LuaJIT",
		.evidence = {{EVIDENCE_FUNCTION, "luaJIT_setmode"}},
		.unseen = "Lua's values",
		.seen = "what C code allocates",
		.rest = "collectgarbage(\"count\")",
	},
	{
		.name = "Boehm's collector",
		.evidence = {{EVIDENCE_FUNCTION, "GC_malloc"}},
		.unseen = "the collected heap (GC_malloc)",
		.seen = "what is allocated without the collector",
		.rest = "GC_get_heap_size(), GC_dump()",
	},
};
_Static_assert(ARRAY_SIZE(runtimes_known) <= MAX_RUNTIMES, "each is noted at most once");

struct runtimes {
	int (*variable)(void *arg, const char *name, char *value, size_t size);
	void *variable_arg;
	size_t count;
	bool noted[MAX_RUNTIMES]; /* by place in the table */
	char *descriptions[MAX_RUNTIMES];
	char *explanation; /* of the first */
};

int runtimes_new(int (*variable)(void *arg, const char *name, char *value, size_t size), void *arg,
		 struct runtimes **ret)
{
	struct runtimes *runtimes = calloc(1, sizeof(*runtimes));

	if (!runtimes)
		return -ENOMEM;
	runtimes->variable = variable;
	runtimes->variable_arg = arg;
	*ret = runtimes;
	return 0;
}

void runtimes_free(struct runtimes *runtimes)
{
	if (!runtimes)
		return;
	for (size_t i = 0; i < runtimes->count; i++)
		free(runtimes->descriptions[i]);
	free(runtimes->explanation);
	free(runtimes);
}

/* What an image shows, by place in the table: the first that there is of a runtime's evidence. */
struct findings {
	const struct evidence *of[ARRAY_SIZE(runtimes_known)];
};

static void compare(struct findings *findings, enum evidence_kind kind, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(runtimes_known); i++) {
		const struct evidence *evidence = runtimes_known[i].evidence;

		for (size_t j = 0; j < MAX_EVIDENCE && &evidence[j] != findings->of[i]; j++) {
			if (evidence[j].kind == kind && !strcmp(evidence[j].name, name)) {
				findings->of[i] = &evidence[j];
				break;
			}
		}
	}
}

static void compare_sections(struct findings *findings, Elf *elf)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name;
		GElf_Shdr shdr;

		if (!gelf_getshdr(scn, &shdr))
			continue;
		name = elf_strptr(elf, names, shdr.sh_name);
		if (name)
			compare(findings, EVIDENCE_SECTION, name);
	}
}

static void compare_notes(struct findings *findings, Elf *elf)
{
	GElf_Phdr phdr;

	for (int i = 0; gelf_getphdr(elf, i, &phdr); i++) {
		size_t offset = 0, name_offset, desc_offset;
		Elf_Data *data;
		GElf_Nhdr nhdr;

		if (phdr.p_type != PT_NOTE || phdr.p_filesz > NOTES_MAX_BYTES)
			continue;
		data = elf_getdata_rawchunk(elf, phdr.p_offset, phdr.p_filesz,
					    phdr.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		while (data &&
		       (offset = gelf_getnote(data, offset, &nhdr, &name_offset, &desc_offset))) {
			const char *name = (const char *)data->d_buf + name_offset;

			/* Go's linker pads the name, and counts the padding. */
			if (nhdr.n_namesz && !name[nhdr.n_namesz - 1])
				compare(findings, EVIDENCE_NOTE, name);
		}
	}
}

/*
 * Exported functions; of a program also those of its .symtab, as one that is linked statically
 * exports none.
 */
static int compare_functions(struct findings *findings, Elf *elf, bool program)
{
	struct symbols symbols = {};
	int err = symbols_add_tables(&symbols, elf, SHT_DYNSYM);

	/* What is damaged ends the table early. */
	if ((!err || err == -ENOEXEC) && program)
		err = symbols_add_tables(&symbols, elf, SHT_SYMTAB);
	for (size_t i = 0; i < symbols.count && err != -ENOMEM; i++) {
		/* Local ones are the image's private matter. */
		if (symbols.entries[i].rank < 2)
			compare(findings, EVIDENCE_FUNCTION, symbols.entries[i].symbol.name);
	}
	symbols_fini(&symbols);
	return err == -ENOMEM ? err : 0;
}

/* Whether the environment has malloc serve all of a runtime's heap. */
static bool served_by_malloc(const struct runtimes *runtimes, const struct runtime *runtime,
			     char *value, size_t size)
{
	if (!runtime->variable ||
	    runtimes->variable(runtimes->variable_arg, runtime->variable, value, size))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(runtime->values) && runtime->values[i]; i++) {
		if (!strcmp(runtime->values[i], value))
			return true;
	}
	return false;
}

/* The only place that says how to see more than malloc's account. */
static int describe(struct runtimes *runtimes, const struct runtime *runtime,
		    const struct evidence *evidence, const char *path)
{
	static const char *const kinds[] = {
		[EVIDENCE_SECTION] = "section",
		[EVIDENCE_NOTE] = "note of",
		[EVIDENCE_FUNCTION] = "function",
	};
	const char *kind = kinds[evidence->kind];
	char value[32], *text;
	int length;

	if (served_by_malloc(runtimes, runtime, value, sizeof(value)))
		length = asprintf(&text, "%s (%s %s in %s): malloc serves all of it, by %s=%s",
				  runtime->name, kind, evidence->name, path, runtime->variable,
				  value);
	else
		length = asprintf(&text,
				  "%s (%s %s in %s): malloc does not serve %s, and heaptap does "
				  "not count this; it counts %s. To see the rest: %s; or heaptap "
				  "record --mode faults or --mmap-only, which see its pages and "
				  "mappings",
				  runtime->name, kind, evidence->name, path, runtime->unseen,
				  runtime->seen, runtime->rest);
	if (length >= 0 && !runtimes->explanation &&
	    asprintf(&runtimes->explanation,
		     "%s (%s %s in %s): malloc does not serve %s. To see it: %s; or heaptap "
		     "record --mode faults or --mmap-only",
		     runtime->name, kind, evidence->name, path, runtime->unseen, runtime->rest) < 0)
		runtimes->explanation = NULL;
	if (length < 0 || !runtimes->explanation) {
		/* What asprintf() leaves behind then is not ours. */
		if (length >= 0)
			free(text);
		return -ENOMEM;
	}
	runtimes->descriptions[runtimes->count++] = text;
	return 0;
}

int runtimes_note_image(struct runtimes *runtimes, struct image *image)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	struct findings findings = {};
	int err;

	if (!elf)
		return -ENOMEM;
	compare_sections(&findings, elf);
	compare_notes(&findings, elf);
	err = compare_functions(&findings, elf, image_is_executable(image));
	for (size_t i = 0; i < ARRAY_SIZE(runtimes_known) && !err; i++) {
		if (!findings.of[i] || runtimes->noted[i])
			continue;
		err = describe(runtimes, &runtimes_known[i], findings.of[i], image_path(image));
		runtimes->noted[i] = !err;
	}
	return err;
}

size_t runtimes_count(const struct runtimes *runtimes)
{
	return runtimes->count;
}

const char *const *runtimes_describe(const struct runtimes *runtimes)
{
	return (const char *const *)runtimes->descriptions;
}

const char *runtimes_explain_none(const struct runtimes *runtimes)
{
	return runtimes->explanation;
}
