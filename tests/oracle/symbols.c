/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The symbolizer without a session, for judges and for timing.
 *
 * Usage: symbols sites FILE COUNT SEED: call sites of a file, chosen at random, as OFFSET ADDRESS.
 * Usage: symbols names [--no-lines]: for each line "FILE OFFSET" on standard input, ">FILE OFFSET"
 * and a line per function, innermost first: name, name in the file, source file and line, with tabs
 * between. At the end the time and the memory it took, on standard error.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "elf/callsites.h"
#include "symbolize/symbolizer.h"

struct opened {
	struct image *image;
	UT_hash_handle hh;
	char path[];
};

static struct image *open_image(const char *path)
{
	struct image *image = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || image_open(fd, path, &image) < 0)
		fprintf(stderr, "symbols: cannot open '%s'\n", path);
	return image;
}

/* Opened files stay open. */
static struct image *find_image(struct opened **files, const char *path)
{
	struct opened *file;

	HASH_FIND_STR(*files, path, file);
	if (!file) {
		file = calloc(1, sizeof(*file) + strlen(path) + 1);
		if (!file)
			return NULL;
		strcpy(file->path, path);
		file->image = open_image(path);
		HASH_ADD_STR(*files, path, file);
	}
	return file->image;
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static int print_sites(const char *path, size_t count, uint64_t seed)
{
	struct image *image CLEANUP(image) = open_image(path);
	struct callsites sites = {};
	struct code code;

	if (!image || code_load(image, &code) || callsites_scan(&code, &sites) || !sites.count)
		return 1;
	for (size_t i = 0; i < count; i++) {
		uint64_t offset = sites.lookups[next_random(&seed) % sites.count], vaddr;

		if (!image_offset_to_vaddr(image, offset, &vaddr))
			printf("%#" PRIx64 " %#" PRIx64 "\n", offset, vaddr);
	}
	callsites_fini(&sites);
	return 0;
}

static void print_frame(const struct symbolized_frame *frame)
{
	for (size_t i = 0; i < frame->line_count; i++) {
		const struct symbolized_line *line = &frame->lines[i];

		printf("%s\t%s\t%s\t%ld\n", line->name, line->system_name,
		       line->filename ? line->filename : "", line->line);
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static int print_names(bool lines)
{
	struct symbolizer *symbolizer CLEANUP(symbolizer) = NULL;
	struct symbolizer_options options = {.lines = lines};
	struct opened *files = NULL, *file, *next;
	struct rusage usage;
	char text[4200], path[4097];
	double start = seconds();
	size_t count = 0;
	uint64_t offset;

	if (symbolizer_new(&options, &symbolizer))
		return 1;
	while (fgets(text, sizeof(text), stdin)) {
		struct symbolized_frame frame = {};
		struct image *image;

		if (sscanf(text, "%4096s %" SCNx64, path, &offset) != 2)
			return 1;
		printf(">%s %#" PRIx64 "\n", path, offset);
		image = find_image(&files, path);
		if (!image || symbolizer_lookup(symbolizer, image, offset, &frame))
			return 1;
		print_frame(&frame);
		count++;
	}
	getrusage(RUSAGE_SELF, &usage);
	fprintf(stderr, "frames=%zu seconds=%.3f max_rss_mb=%ld\n", count, seconds() - start,
		usage.ru_maxrss / 1024);
	symbolizer_free(symbolizer);
	symbolizer = NULL;
	HASH_ITER (hh, files, file, next) {
		HASH_DEL(files, file);
		image_free(file->image);
		free(file);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "sites"))
		return print_sites(argv[2], strtoul(argv[3], NULL, 0), strtoull(argv[4], NULL, 0));
	if (argc >= 2 && !strcmp(argv[1], "names"))
		return print_names(argc < 3 || strcmp(argv[2], "--no-lines"));
	fputs("usage: symbols sites FILE COUNT SEED | symbols names [--no-lines]\n", stderr);
	return 2;
}
