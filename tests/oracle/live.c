/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walker against libdwfl, on the stacks of a running process.
 *
 * Usage: live [-c] [-n STACKS] [-e EVERY] [-t SECONDS] PID. Of every EVERY calls of malloc on
 * average one is taken: its stack is walked in the kernel, and unwound here from a copy of the
 * registers and of up to 256 KB of the stack. Frames are compared as (image, file offset).
 *
 * identical: the same frames. longer: libdwfl stopped first, and agrees up to there; its reasons
 * are listed. shorter: the walk was cut, said so, and was right up to there. unjudged: they part
 * behind code without call frame information, where libdwfl takes rbp for a frame pointer without
 * a check. differing: anything else, printed in full, exit status 1. -c prints the shorter ones
 * too, each once. jit: stacks with code that no file backs; they are counted in the others too.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <uthash.h>

#include "elf/symtab.h"
#include "heaptap/epoch.h"
#include "heaptap/fork_copy.h"
#include "heaptap/settings.h"
#include "heaptap/stack.h"
#include "heaptap/weight.h"
#include "live.h"
#include "heaptap/fault.h"
#include "heaptap/throw.h"
#include "live.skel.h"
#include "proc/maps.h"
#include "unwind/tables.h"

#define MAX_PROBES  8
#define MAX_FRAMES  (STACK_MAX_FRAMES + 1)
#define MAX_REASONS 16

/* An executable mapping of the target. */
struct region {
	uint64_t start;
	uint64_t end;
	uint64_t offset;
	__u32 id; /* 0: no file */
};

struct reason {
	const char *text;
	size_t count;
};

struct known_stack {
	__u64 id;
	UT_hash_handle hh;
};

struct walked {
	__u64 frames[MAX_FRAMES];
	size_t count;
	unsigned int stop;
	bool guessed;
	bool raw;
};

/* libdwfl's frames, leaf first, without malloc itself. */
struct judged {
	uint64_t pcs[MAX_FRAMES];
	bool signal[MAX_FRAMES]; /* at or beside a signal frame: pc is exact or a return address */
	size_t count;
	size_t proven; /* frames before this one were not guessed */
	bool first;
	const char *error;
};

struct totals {
	size_t stacks, identical, longer, shorter, unjudged, differing, complete;
	size_t jit, jit_complete, guessed, lost;
	struct known_stack *distinct;
	struct reason longer_reasons[MAX_REASONS];
	struct reason cut_reasons[STOP_COUNT];
};

struct oracle {
	pid_t pid;
	struct live_bpf *object;
	struct tables *tables;
	struct image *images[UNWIND_MAX_IMAGES]; /* by id */
	struct region *regions;
	size_t region_count;
	Dwfl *dwfl;
	const struct sample *sample;
	struct totals totals;
	size_t wanted;
	bool print_cut;
	struct bpf_link *links[MAX_PROBES];
	size_t link_count;
};

static const char *const stop_texts[] = {
#define X(id, text) [STOP_##id] = text,
	STACK_STOPS(X)
#undef X
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
	interrupted = 1;
}

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "live: %s: %s\n", what, strerror(errno));
	exit(2);
}

/* The id of a file, as the kernel side knows it: see kernel_identify(). */
static __u32 identify(struct oracle *oracle, int fd)
{
	union bpf_iter_link_info info = {.task.pid = getpid()};
	LIBBPF_OPTS(bpf_iter_attach_opts, opts, .link_info = &info, .link_info_len = sizeof(info));
	struct live_bpf__bss *bss = oracle->object->bss;
	struct image_identity identity = {};
	struct bpf_link *link;
	void *page;
	int iterator;

	page = mmap(NULL, SAMPLE_PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	if (page == MAP_FAILED)
		return 0;
	bss->identify_start = (uintptr_t)page;
	bss->identify_end = (uintptr_t)page + SAMPLE_PAGE;
	bss->identify_tgid = getpid();
	link = bpf_program__attach_iter(oracle->object->progs.identify_image, &opts);
	require(link, "attach the iterator");
	iterator = bpf_iter_create(bpf_link__fd(link));
	require(iterator >= 0, "create the iterator");
	if (read(iterator, &identity, sizeof(identity)) != sizeof(identity))
		identity.id = 0;
	close(iterator);
	bpf_link__destroy(link);
	munmap(page, SAMPLE_PAGE);
	return identity.id;
}

/* Opens and publishes the file of a mapping, unless it is known. Returns its id, or 0. */
static __u32 add_file(struct oracle *oracle, const struct mapping *mapping)
{
	int fd = maps_open_file(oracle->pid, mapping);
	struct image *image;
	__u32 id;

	if (fd < 0)
		return 0;
	id = identify(oracle, fd);
	if (!id || id >= UNWIND_MAX_IMAGES || oracle->images[id]) {
		close(fd);
		return id;
	}
	if (image_open(fd, mapping->path, &image))
		return id;
	oracle->images[id] = image;
	if (tables_build(oracle->tables, id, image, false))
		fprintf(stderr, "live: no table for %s\n", mapping->path);
	return id;
}

/* All executable mappings as they are now. */
static void read_regions(struct oracle *oracle)
{
	struct maps *maps CLEANUP(maps) = NULL;

	if (maps_read(oracle->pid, &maps))
		return;
	free(oracle->regions);
	oracle->regions = calloc(maps->count, sizeof(*oracle->regions));
	oracle->region_count = 0;
	require(oracle->regions, "read the mappings");
	for (size_t i = 0; i < maps->count; i++) {
		const struct mapping *mapping = &maps->entries[i];

		if (!mapping->executable)
			continue;
		oracle->regions[oracle->region_count++] = (struct region){
			.start = mapping->start,
			.end = mapping->end,
			.offset = mapping->offset,
			.id = mapping->inode ? add_file(oracle, mapping) : 0,
		};
	}
}

/* libdwfl forgets and learns all modules. */
static void report_modules(struct oracle *oracle)
{
	dwfl_report_begin_add(oracle->dwfl);
	dwfl_linux_proc_report(oracle->dwfl, oracle->pid);
	require(!dwfl_report_end(oracle->dwfl, NULL, NULL), "report the modules");
}

static const struct region *find_region(const struct oracle *oracle, uint64_t address)
{
	for (size_t i = 0; i < oracle->region_count; i++) {
		if (address >= oracle->regions[i].start && address < oracle->regions[i].end)
			return &oracle->regions[i];
	}
	return NULL;
}

/* An address as the walker would put it. */
static __u64 frame_word(const struct oracle *oracle, uint64_t address)
{
	const struct region *region = find_region(oracle, address);

	if (!region || !region->id)
		return FRAME_RAW | address;
	return (__u64)region->id << FRAME_OFFSET_BITS | (address - region->start + region->offset);
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	struct oracle *oracle = arg;

	if (*thread_arg)
		return 0;
	*thread_arg = oracle;
	return oracle->pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
	*thread_arg = arg;
	return true;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *result, void *arg)
{
	const struct oracle *oracle = arg;
	const struct sample *sample = oracle->sample;
	uint64_t at = address - sample->base;

	if (address < sample->base || at > sample->size || sample->size - at < sizeof(*result))
		return false;
	memcpy(result, sample->memory + at, sizeof(*result));
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	const struct oracle *oracle = arg;
	Dwarf_Word registers[SAMPLE_REGISTERS];

	for (int i = 0; i < SAMPLE_REGISTERS; i++)
		registers[i] = oracle->sample->registers[i];
	return dwfl_thread_state_registers(thread, 0, SAMPLE_REGISTERS, registers);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = read_memory,
	.set_initial_registers = set_registers,
};

/* The files themselves are enough, and nothing is asked of a server. */
static int no_debuginfo(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
			const char *file, const char *debuglink, GElf_Word crc, char **path)
{
	return -1;
}

static const Dwfl_Callbacks module_callbacks = {
	.find_elf = dwfl_linux_proc_find_elf,
	.find_debuginfo = no_debuginfo,
};

static bool cfi_covers(Dwarf_CFI *cfi, Dwarf_Addr address)
{
	Dwarf_Frame *frame = NULL;

	if (!cfi || dwarf_cfi_addrframe(cfi, address, &frame))
		return false;
	free(frame);
	return true;
}

static bool has_cfi(Dwfl_Frame *state, Dwarf_Addr pc)
{
	Dwfl *dwfl = dwfl_thread_dwfl(dwfl_frame_thread(state));
	Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
	Dwarf_Addr eh_bias, dwarf_bias;
	Dwarf_CFI *eh, *dwarf;

	if (!module)
		return false;
	eh = dwfl_module_eh_cfi(module, &eh_bias);
	dwarf = dwfl_module_dwarf_cfi(module, &dwarf_bias);
	return cfi_covers(eh, pc - eh_bias) || cfi_covers(dwarf, pc - dwarf_bias);
}

static int add_frame(Dwfl_Frame *state, void *arg)
{
	struct judged *judged = arg;
	Dwarf_Addr pc;
	bool exact;

	if (!dwfl_frame_pc(state, &pc, &exact))
		return DWARF_CB_ABORT;
	if (judged->first) {
		judged->first = false;
		return DWARF_CB_OK;
	}
	/* A return address of 0 ends a stack for both. */
	if (!pc || judged->count == MAX_FRAMES)
		return DWARF_CB_ABORT;
	judged->signal[judged->count] = exact;
	judged->pcs[judged->count++] = pc;
	/* What comes after code without information is libdwfl's guess. */
	if (judged->proven == MAX_FRAMES && !has_cfi(state, pc - !exact))
		judged->proven = judged->count;
	return DWARF_CB_OK;
}

static void judge(struct oracle *oracle, struct judged *judged)
{
	judged->count = 0;
	judged->proven = MAX_FRAMES;
	judged->first = true;
	judged->error = NULL;
	dwfl_errno();
	if (dwfl_getthread_frames(oracle->dwfl, oracle->pid, add_frame, judged) < 0)
		judged->error = dwfl_errmsg(-1);
}

static bool read_walked(struct oracle *oracle, __u64 id, struct walked *walked)
{
	int map = bpf_map__fd(oracle->object->maps.chunks);
	struct stack_chunk chunk;

	memset(walked, 0, sizeof(*walked));
	if (id == STACK_ID_LOST)
		return false;
	while (id) {
		if (bpf_map_lookup_elem(map, &id, &chunk))
			return false;
		for (__u32 i = 0; i < chunk.count && walked->count < MAX_FRAMES; i++) {
			walked->raw |= !!(chunk.frames[i] & FRAME_RAW);
			walked->frames[walked->count++] = chunk.frames[i];
		}
		id = chunk.parent;
	}
	walked->stop = chunk.stop;
	walked->guessed = chunk.flags & STACK_GUESSED;
	return true;
}

static void count_reason(struct reason *reasons, size_t max, const char *text)
{
	for (size_t i = 0; i < max; i++) {
		if (!reasons[i].text || strcmp(reasons[i].text, text) == 0) {
			reasons[i].text = text;
			reasons[i].count++;
			return;
		}
	}
}

static void print_word(const struct oracle *oracle, __u64 frame)
{
	__u32 id = frame >> FRAME_OFFSET_BITS;
	const char *path;

	if (frame & FRAME_RAW) {
		printf("0x%llx", frame & ~FRAME_RAW);
		return;
	}
	path = oracle->images[id] ? image_path(oracle->images[id]) : "?";
	printf("%s+0x%llx", strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
	       frame & FRAME_OFFSET_MASK);
}

static bool same_frame(const struct oracle *oracle, const struct walked *walked,
		       const struct judged *judged, size_t i)
{
	uint64_t pc = judged->pcs[i];

	return walked->frames[i] == frame_word(oracle, pc - 1) ||
	       (judged->signal[i] && walked->frames[i] == frame_word(oracle, pc));
}

static size_t common_frames(const struct oracle *oracle, const struct walked *walked,
			    const struct judged *judged)
{
	size_t i = 0;

	while (i < walked->count && i < judged->count && same_frame(oracle, walked, judged, i))
		i++;
	return i;
}

static void print_stack(const struct oracle *oracle, const struct walked *walked,
			const struct judged *judged)
{
	size_t count = walked->count > judged->count ? walked->count : judged->count;

	printf("ours: %s%s, libdwfl's: %s\n", stop_texts[walked->stop],
	       walked->guessed ? " (guessed)" : "", judged->error ? judged->error : "complete");
	for (size_t i = 0; i < count; i++) {
		printf("  %3zu ", i);
		if (i < walked->count)
			print_word(oracle, walked->frames[i]);
		else
			printf("-");
		if (i < walked->count && i < judged->count &&
		    same_frame(oracle, walked, judged, i)) {
			printf("\n");
			continue;
		}
		printf("  !=  ");
		if (i < judged->count)
			print_word(oracle, frame_word(oracle, judged->pcs[i] - 1));
		else
			printf("-");
		printf("\n");
	}
}

/* Returns whether the stack is new. */
static bool count_distinct(struct totals *totals, __u64 id)
{
	struct known_stack *known;

	HASH_FIND(hh, totals->distinct, &id, sizeof(id), known);
	if (known)
		return false;
	known = calloc(1, sizeof(*known));
	require(known, "count stacks");
	known->id = id;
	HASH_ADD(hh, totals->distinct, id, sizeof(known->id), known);
	return true;
}

static void compare(struct oracle *oracle, const struct walked *walked, const struct judged *judged)
{
	struct totals *totals = &oracle->totals;
	size_t common = common_frames(oracle, walked, judged);
	bool complete = walked->stop == STOP_END;
	bool new = count_distinct(totals, oracle->sample->stack_id);

	totals->stacks++;
	totals->complete += complete;
	totals->jit += walked->raw;
	totals->jit_complete += walked->raw && complete;
	totals->guessed += walked->guessed;
	if (!complete)
		count_reason(totals->cut_reasons, STOP_COUNT, stop_texts[walked->stop]);
	if (common == walked->count && common == judged->count) {
		totals->identical++;
	} else if (common == judged->count && judged->error) {
		totals->longer++;
		count_reason(totals->longer_reasons, MAX_REASONS, judged->error);
	} else if (common == walked->count && !complete) {
		totals->shorter++;
		if (oracle->print_cut && new)
			print_stack(oracle, walked, judged);
	} else if (common >= judged->proven) {
		totals->unjudged++;
	} else {
		totals->differing++;
		printf("differing: ");
		print_stack(oracle, walked, judged);
	}
}

static bool all_mapped(const struct oracle *oracle, const struct judged *judged)
{
	for (size_t i = 0; i < judged->count; i++) {
		if (!find_region(oracle, judged->pcs[i] - 1))
			return false;
	}
	return true;
}

/* What the walker has asked for: rows between calls. */
static void build_wanted(struct oracle *oracle)
{
	int map = bpf_map__fd(oracle->object->maps.unwind_images);

	for (__u32 id = 1; id < UNWIND_MAX_IMAGES; id++) {
		__u32 flags = 0;

		if (oracle->images[id] && !bpf_map_lookup_elem(map, &id, &flags) &&
		    flags & UNWIND_WANT_ALL && !(flags & UNWIND_ALL_ROWS))
			tables_request(oracle->tables, id, oracle->images[id], true);
	}
}

static int on_sample(void *arg, void *data, size_t size)
{
	static struct walked walked;
	static struct judged judged;
	struct oracle *oracle = arg;

	if (oracle->totals.stacks >= oracle->wanted)
		return 0;
	oracle->sample = data;
	if (!read_walked(oracle, oracle->sample->stack_id, &walked)) {
		oracle->totals.lost++;
		return 0;
	}
	judge(oracle, &judged);
	/* A library was loaded meanwhile. */
	if (!all_mapped(oracle, &judged) || walked.stop == STOP_NOT_BUILT) {
		read_regions(oracle);
		report_modules(oracle);
		judge(oracle, &judged);
	}
	if (walked.stop == STOP_INTERRUPTED)
		build_wanted(oracle);
	compare(oracle, &walked, &judged);
	return 0;
}

/* Probes every malloc that there is: libjemalloc's hides libc's. */
static void attach(struct oracle *oracle)
{
	for (__u32 id = 1; id < UNWIND_MAX_IMAGES; id++) {
		struct symtab *symtab CLEANUP(symtab) = NULL;
		const struct symbol *symbol;
		struct bpf_link *link;
		char path[64];
		uint64_t offset;

		if (!oracle->images[id] || symtab_load(oracle->images[id], &symtab))
			continue;
		symbol = symtab_find(symtab, "malloc");
		if (!symbol || oracle->link_count == MAX_PROBES ||
		    image_vaddr_to_offset(oracle->images[id], symbol->start, &offset))
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", image_fd(oracle->images[id]));
		link = bpf_program__attach_uprobe(oracle->object->progs.live_enter, false,
						  oracle->pid, path, offset);
		require(link, image_path(oracle->images[id]));
		oracle->links[oracle->link_count++] = link;
	}
	if (!oracle->link_count)
		fprintf(stderr, "live: no malloc in process %d\n", oracle->pid);
	require(oracle->link_count, "attach");
}

static void load(struct oracle *oracle, __u32 every)
{
	struct upload_maps maps;
	struct bpf_program *program;

	oracle->object = live_bpf__open();
	require(oracle->object, "open the BPF object");
	oracle->object->rodata->sample_every = every;
	bpf_object__for_each_program(program, oracle->object->obj)
	{
		bpf_program__set_autoload(program,
					  program == oracle->object->progs.live_enter ||
						  program == oracle->object->progs.identify_image);
	}
	require(!live_bpf__load(oracle->object), "load the BPF object");
	maps = (struct upload_maps){
		.images = bpf_map__fd(oracle->object->maps.unwind_images),
		.tables = bpf_map__fd(oracle->object->maps.unwind_tables),
		.rules = bpf_map__fd(oracle->object->maps.unwind_rules),
	};
	require(!tables_new(&maps, &oracle->tables), "make the tables");
}

static void print_totals(const struct oracle *oracle)
{
	const struct totals *totals = &oracle->totals;

	for (int i = 0; i < STOP_COUNT && totals->cut_reasons[i].text; i++)
		printf("cut: %zu %s\n", totals->cut_reasons[i].count, totals->cut_reasons[i].text);
	for (int i = 0; i < MAX_REASONS && totals->longer_reasons[i].text; i++)
		printf("libdwfl stopped: %zu %s\n", totals->longer_reasons[i].count,
		       totals->longer_reasons[i].text);
	printf("stacks=%zu identical=%zu longer=%zu differing=%zu complete=%zu shorter=%zu "
	       "unjudged=%zu distinct=%u guessed=%zu jit=%zu jit_complete=%zu lost=%zu "
	       "dropped=%llu\n",
	       totals->stacks, totals->identical, totals->longer, totals->differing,
	       totals->complete, totals->shorter, totals->unjudged, HASH_COUNT(totals->distinct),
	       totals->guessed, totals->jit, totals->jit_complete, totals->lost,
	       oracle->object->bss->samples_dropped);
}

int main(int argc, char **argv)
{
	static struct oracle oracle;
	struct ring_buffer *ring;
	unsigned int every = 1, seconds = 30;
	time_t end;
	int option;

	oracle.wanted = 1000;
	while ((option = getopt(argc, argv, "cn:e:t:")) != -1) {
		if (option == 'c')
			oracle.print_cut = true;
		else if (option == 'n')
			oracle.wanted = strtoul(optarg, NULL, 10);
		else if (option == 'e')
			every = strtoul(optarg, NULL, 10);
		else if (option == 't')
			seconds = strtoul(optarg, NULL, 10);
		else
			return 2;
	}
	if (optind + 1 != argc || !every) {
		fprintf(stderr, "usage: live [-c] [-n STACKS] [-e EVERY] [-t SECONDS] PID\n");
		return 2;
	}
	oracle.pid = atoi(argv[optind]);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	elf_version(EV_CURRENT);
	load(&oracle, every);
	read_regions(&oracle);
	oracle.dwfl = dwfl_begin(&module_callbacks);
	require(oracle.dwfl, "begin libdwfl");
	report_modules(&oracle);
	if (!dwfl_attach_state(oracle.dwfl, NULL, oracle.pid, &thread_callbacks, &oracle)) {
		fprintf(stderr, "live: libdwfl: %s\n", dwfl_errmsg(-1));
		return 2;
	}
	ring = ring_buffer__new(bpf_map__fd(oracle.object->maps.samples), on_sample, &oracle, NULL);
	require(ring, "open the ring");
	attach(&oracle);
	fprintf(stderr, "attached\n");
	end = time(NULL) + seconds;
	while (!interrupted && oracle.totals.stacks < oracle.wanted && time(NULL) < end &&
	       !kill(oracle.pid, 0))
		ring_buffer__poll(ring, 100);
	for (size_t i = 0; i < oracle.link_count; i++)
		bpf_link__destroy(oracle.links[i]);
	ring_buffer__consume(ring);
	print_totals(&oracle);
	ring_buffer__free(ring);
	return oracle.totals.differing > 0;
}
