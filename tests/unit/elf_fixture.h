/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ELF inputs, built when a test runs: sources compiled into a folder of the test's own, and whole
 * files in memory that a test may damage.
 */
#ifndef HEAPTAP_TESTS_ELF_FIXTURE_H
#define HEAPTAP_TESTS_ELF_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/image.h"

static char fixture_folder[64];

static inline int fixture_setup(void **state)
{
	strcpy(fixture_folder, "/tmp/heaptap-test-XXXXXX");
	return mkdtemp(fixture_folder) ? 0 : -1;
}

static inline int fixture_teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", fixture_folder);
	return system(command);
}

static inline const char *fixture_path(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", fixture_folder, name);
	return path;
}

/* Writes source to a file of its own and compiles it to `name`, in the fixture's folder. */
static inline void fixture_compile(const char *name, const char *suffix, const char *source,
				   const char *options)
{
	char path[128], command[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s%s", fixture_folder, name, suffix);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(source, file);
	assert_int_equal(fclose(file), 0);
	snprintf(command, sizeof(command), "cd %s && gcc -w -o %s %s%s %s", fixture_folder, name,
		 name, suffix, options);
	assert_int_equal(system(command), 0);
}

static inline struct image *fixture_open(const char *path)
{
	struct image *image = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, &image), 0);
	return image;
}

static inline uint8_t *fixture_read(const char *path, size_t *ret_size)
{
	FILE *file = fopen(path, "r");
	uint8_t *bytes;
	long size;

	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	bytes = malloc(size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, size, file), size);
	fclose(file);
	*ret_size = size;
	return bytes;
}

static inline int fixture_memfd(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	return fd;
}

static inline Elf64_Shdr *fixture_section(uint8_t *bytes, const char *name)
{
	const Elf64_Ehdr *ehdr = (Elf64_Ehdr *)bytes;
	Elf64_Shdr *shdrs = (Elf64_Shdr *)(bytes + ehdr->e_shoff);
	const char *names = (char *)bytes + shdrs[ehdr->e_shstrndx].sh_offset;

	for (size_t i = 0; i < ehdr->e_shnum; i++)
		if (!strcmp(names + shdrs[i].sh_name, name))
			return &shdrs[i];
	fail_msg("no section '%s'", name);
	return NULL;
}

/* The file of a path with one section there twice, in place of another one behind it. */
static inline struct image *fixture_open_repeated(const char *path, const char *name,
						  const char *replaced)
{
	struct image *image = NULL;
	size_t size;
	uint8_t *bytes = fixture_read(path, &size);

	assert_true(fixture_section(bytes, name) < fixture_section(bytes, replaced));
	*fixture_section(bytes, replaced) = *fixture_section(bytes, name);
	assert_int_equal(image_open(fixture_memfd(bytes, size), path, &image), 0);
	free(bytes);
	return image;
}

/* Calls check with many damaged copies of a file: cut short, and with bytes changed. */
static inline void fixture_damage(const uint8_t *bytes, size_t size, void (*check)(int fd))
{
	uint8_t *copy = malloc(size);
	unsigned int seed = 1;

	assert_non_null(copy);
	for (size_t cut = 0; cut < size; cut += cut < 1024 ? 1 : 61)
		check(fixture_memfd(bytes, cut));
	for (size_t i = 0; i < 2000; i++) {
		memcpy(copy, bytes, size);
		for (size_t n = 1 + i % 4; n; n--) {
			/* Half of the damage to the headers, at the start and at the end. */
			size_t at = (size_t)rand_r(&seed) % size;

			if (i % 4 == 1)
				at %= 1024;
			if (i % 4 == 3)
				at = size - 1 - at % (size < 2048 ? size : 2048);
			copy[at] = i % 3 ? (uint8_t)rand_r(&seed) : 0xff;
		}
		check(fixture_memfd(copy, size));
	}
	free(copy);
}

#endif
