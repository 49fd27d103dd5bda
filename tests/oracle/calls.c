/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls allocation functions a known number of times, each another one, and writes down how often
 * and with what: for each function a line "hits=N nonzero=N sums=N,N,N" as the judge `hits` has it.
 *
 * Usage: calls LIBRARY FUNCTIONS TRUTH
 *
 * FUNCTIONS is a file as `placements` prints it. With "-" for the library it is that of the
 * process, whose blocks are then really allocated and freed; what such functions call among
 * themselves is not in the truth.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_MAX 4096
#define BLOCK	     64 /* size and alignment of blocks that are freed */

typedef uint64_t (*callee)(uint64_t, uint64_t, uint64_t, uint64_t);

enum { PTR, SIZE, AUX, ARG_COUNT };

struct function {
	char name[64];
	int args[ARG_COUNT]; /* which argument that is; -1 if none */
	int frees;
	callee call;
	uint64_t calls, nonzero, sums[ARG_COUNT];
};

static struct function functions[FUNCTION_MAX];
static size_t function_count;
static int is_real;
static _Alignas(BLOCK) char fake_blocks[BLOCK * 1024];
static void *(*make_block)(uint64_t align, uint64_t size);
static void (*free_block)(void *block);
static void *(*get_heap)(void); /* of mimalloc, per thread */

/* Of a register's number. */
static int argument_index(const char *reg)
{
	static const int registers[] = {7, 6, 2, 1};

	for (int i = 0; i < 4; i++)
		if (*reg != '-' && atoi(reg) == registers[i])
			return i;
	return -1;
}

static void read_functions(const char *path, void *library)
{
	FILE *file = fopen(path, "r");
	char line[512];

	while (file && function_count < FUNCTION_MAX && fgets(line, sizeof(line), file)) {
		struct function *f = &functions[function_count++];
		char args[ARG_COUNT][8], kind[8];

		if (sscanf(line, "%63s %*s %*s %7[^,],%7[^,],%7s %*s %7s", f->name, args[PTR],
			   args[SIZE], args[AUX], kind) != 5) {
			fprintf(stderr, "calls: %s", line);
			exit(2);
		}
		for (int i = 0; i < ARG_COUNT; i++)
			f->args[i] = argument_index(args[i]);
		f->frees = !strcmp(kind, "free");
		/* glibc's cfree() is for programs that were linked long ago. */
		f->call = (callee)dlsym(library, f->name);
		if (!f->call)
			function_count--;
	}
	if (file)
		fclose(file);
}

static uint64_t old_block(size_t n)
{
	if (n % 3 == 1)
		return 0;
	if (is_real)
		return (uintptr_t)make_block(BLOCK, BLOCK);
	return (uintptr_t)fake_blocks + n % 1024 * BLOCK;
}

static void call(struct function *f, size_t n)
{
	int has_flags = strstr(f->name, "allocx") != NULL;
	int is_out = strstr(f->name, "posix_memalign") != NULL;
	uint64_t args[4] = {}, values[ARG_COUNT] = {}, out = 0, result;

	/* delete() of any kind is told the size, the alignment, or both. */
	if (f->frees)
		args[1] = args[2] = BLOCK;
	if (has_flags)
		args[2] = 0;
	if (f->frees && !strcmp(f->name, "dallocx"))
		args[1] = 0;
	if (!strncmp(f->name, "mi_heap_", 8))
		args[0] = (uintptr_t)get_heap();
	if (f->args[AUX] >= 0)
		values[AUX] = 16ull << n % 4;
	if (f->args[SIZE] >= 0)
		values[SIZE] = values[AUX] ? values[AUX] * (1 + n % 50) : 1 + n * n * 37 % 70000;
	if (f->args[PTR] >= 0)
		values[PTR] = is_out ? (uintptr_t)&out : old_block(n);
	/* The others' own requirement: jemalloc's *allocx take no NULL. */
	if (has_flags && f->args[PTR] >= 0 && !values[PTR])
		values[PTR] = old_block(n + 1);
	for (int i = 0; i < ARG_COUNT; i++)
		if (f->args[i] >= 0)
			args[f->args[i]] = values[i];
	f->calls++;
	f->nonzero += values[PTR] != 0;
	for (int i = 0; i < ARG_COUNT; i++)
		f->sums[i] += values[i];
	result = f->call(args[0], args[1], args[2], args[3]);
	if (!is_real || f->frees)
		return;
	/* xallocx() answers with a size. */
	if (!strcmp(f->name, "xallocx"))
		free_block((void *)(uintptr_t)values[PTR]);
	else
		free_block((void *)(uintptr_t)(is_out ? out : result));
}

static void write_truth(const char *path)
{
	FILE *file = fopen(path, "w");

	for (size_t i = 0; file && i < function_count; i++) {
		const struct function *f = &functions[i];

		fprintf(file, "hits=%llu nonzero=%llu sums=%llu,%llu,%llu\n",
			(unsigned long long)f->calls, (unsigned long long)f->nonzero,
			(unsigned long long)f->sums[PTR], (unsigned long long)f->sums[SIZE],
			(unsigned long long)f->sums[AUX]);
	}
	if (!file || fclose(file)) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	void *library;

	if (argc != 4) {
		fprintf(stderr, "usage: calls LIBRARY FUNCTIONS TRUTH\n");
		return 2;
	}
	is_real = !strcmp(argv[1], "-");
	library = dlopen(is_real ? NULL : argv[1], RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "calls: %s\n", dlerror());
		return 1;
	}
	read_functions(argv[2], library);
	make_block = (void *(*)(uint64_t, uint64_t))dlsym(library, "aligned_alloc");
	free_block = (void (*)(void *))dlsym(library, "free");
	get_heap = (void *(*)(void))dlsym(library, "mi_heap_get_default");
	for (size_t i = 0; i < function_count; i++)
		for (size_t n = 0; n < 10 + i % 89; n++)
			call(&functions[i], n);
	write_truth(argv[3]);
	return 0;
}
